// What the backend "shm" refuses, and what it takes: wide, odd and very large tensors.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cohort/base/text/text.h"
#include "tests/comm/shm/shm_threads.h"
#include "tests/support/marks.h"
#include "tests/support/require.h"

PLACE_OF_FILE(own)

namespace cohort {
namespace {

using test::Mode;
using test::reduce_on;
using test::run_shm_threads;
using test::text_of_error;
using Tensors = std::vector<at::Tensor>;

std::string value_error(const std::function<void()>& fn) { return text_of_error<c10::ValueError>(fn); }

TEST(ShmArguments, RefusesWhatCannotWorkMessage) {
  run_shm_threads(1, [](int, const Group&, c10d::Backend& backend) {
    EXPECT_EQ(value_error([&] { reduce_on(backend, {}); }), "[cohort] all_reduce needs at least one tensor");
    EXPECT_EQ(value_error([&] {
                reduce_on(backend, {at::ones({1}), at::ones({1})});
              }),
              "[cohort] all_reduce on backend \"shm\" takes one tensor, got 2");
    EXPECT_EQ(value_error([&] { reduce_on(backend, {at::ones({1})}, Mode::kSync, ReduceOp::BAND); }),
              "[cohort] all_reduce: Cannot use ReduceOp.BAND with non-integral dtype float32");
    EXPECT_EQ(value_error([&] { reduce_on(backend, {at::ones({1}, at::kComplexFloat)}, Mode::kSync, ReduceOp::MAX); }),
              "[cohort] all_reduce does not support ReduceOp.MAX on complex tensors, got complex64");
    EXPECT_EQ(value_error([&] { reduce_on(backend, {at::ones({1}, at::kBool)}, Mode::kSync, ReduceOp::AVG); }),
              "[cohort] all_reduce does not support ReduceOp.AVG on bool tensors");
    EXPECT_EQ(value_error([&] { reduce_on(backend, {at::_empty_affine_quantized({1}, at::kQInt8)}); }),
              "[cohort] all_reduce does not support ReduceOp.SUM on qint8 tensors");
    Tensors one{at::ones({1})};
    EXPECT_EQ(value_error([&] { backend.send(one, 0, 0); }), "[cohort] send: a rank cannot send to itself");
    std::vector<Tensors> lists{{at::ones({2})}};
    EXPECT_EQ(value_error([&] { backend.allgather(lists, one, {}); }),
              "[cohort] all_gather needs a tensor of 1 elements at place 0 of the list, this rank's, got 2");
  });
}

TEST(ShmArguments, RefusesPairsThatDoNotFitMessage) {
  run_shm_threads(1, [](int, const Group&, c10d::Backend& backend) {
    auto three = at::ones({3});
    auto two = at::ones({2});
    auto doubles = at::ones({2}, at::kDouble);
    std::vector<int64_t> splits;
    EXPECT_EQ(value_error([&] { backend._allgather_base(three, two, {}); }),
              "[cohort] all_gather_single needs an output of 2 elements, got 3");
    EXPECT_EQ(value_error([&] { backend._allgather_base(two, doubles, {}); }),
              "[cohort] all_gather_single needs tensors of one dtype, got float64 and float32");
    EXPECT_EQ(value_error([&] { backend._reduce_scatter_base(two, three, {}); }),
              "[cohort] reduce_scatter_single needs an input of 2 elements, got 3");
    EXPECT_EQ(value_error([&] { backend._reduce_scatter_base(two, doubles, {}); }),
              "[cohort] reduce_scatter_single needs tensors of one dtype, got float32 and float64");
    EXPECT_EQ(value_error([&] { backend.alltoall_base(two, doubles, splits, splits, {}); }),
              "[cohort] all_to_all_single needs tensors of one dtype, got float32 and float64");
  });
}

TEST(ShmArguments, MovesDtypesThatNobodyCanReduce) {
  run_shm_threads(2, [](int rank, const Group&, c10d::Backend& backend) {
    const auto bytes = rank == 0 ? at::arange(6, at::kByte) : at::zeros({6}, at::kByte);
    Tensors tensors{bytes.view(at::kFloat8_e5m2)};
    c10d::BroadcastOptions options;
    options.asyncOp = false;
    backend.broadcast(tensors, options)->wait();
    REQUIRE(at::equal(bytes, at::arange(6, at::kByte)));
  });
}

TEST(ShmArguments, LazyConjugatesAreSeen) {
  run_shm_threads(2, [](int, const Group&, c10d::Backend& backend) {
    auto tensor = at::view_as_complex(at::ones({4, 2})).conj();
    REQUIRE(tensor.is_conj());
    reduce_on(backend, {tensor})->wait();
    REQUIRE(at::equal(at::view_as_real(tensor.resolve_conj()).select(1, 1), at::full({4}, -2.0)));
  });
}

TEST(ShmArguments, AverageAddsTermsThatHaveBeenScaled) {
  run_shm_threads(3, [](int rank, const Group&, c10d::Backend& backend) {
    const auto tensor = at::full({5}, static_cast<float>(rank) + 0.1F);
    reduce_on(backend, {tensor}, Mode::kSync, ReduceOp::AVG)->wait();
    const float third = 1.0F / 3.0F;
    volatile float sum = 0.1F * third;
    sum = sum + 1.1F * third;
    sum = sum + 2.1F * third;
    REQUIRE(tensor[4].item<float>() == sum);
  });
}

long long available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("MemAvailable:", 0) == 0) return std::stoll(line.substr(line.find_first_of("0123456789"))) << 10;
  }
  return 0;
}

// 2 ranks of 4 GiB and a bit, and the page tables.
TEST(ShmArguments, MoreThanFourGiB) {
  constexpr int64_t kCount = (int64_t{4} << 30) + 12345;
  constexpr long long kNeeded = 14LL << 30;
  if (available_bytes() < kNeeded) {
    GTEST_SKIP() << "it needs " << base::format_bytes(kNeeded) << " of free memory, there is "
                 << base::format_bytes(static_cast<unsigned long long>(available_bytes()));
  }
  run_shm_threads(2, [](int rank, const Group&, c10d::Backend& backend) {
    auto tensor = at::zeros({kCount}, at::kByte);
    tensor[kCount - 1].fill_(rank + 3);
    tensor[(int64_t{1} << 32) + 1].fill_(rank + 5);
    reduce_on(backend, {tensor}, Mode::kSync, ReduceOp::MAX)->wait();
    REQUIRE(tensor[kCount - 1].item<int>() == 4 && tensor[(int64_t{1} << 32) + 1].item<int>() == 6);
    tensor[kCount - 2].fill_(rank + 7);
    Tensors tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = 1;
    options.asyncOp = false;
    backend.broadcast(tensors, options)->wait();
    REQUIRE(tensor[kCount - 2].item<int>() == 8);
  });
}

}  // namespace
}  // namespace cohort
