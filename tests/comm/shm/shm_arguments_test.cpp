// What the backend "shm" refuses, and what it takes: wide, odd and very large tensors.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <iostream>

#include "cohort/base/text.h"
#include "cohort/comm/collectives.h"
#include "cohort/comm/shm/shm_backend.h"
#include "cohort/comm/shm/shm_empty.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using Tensors = std::vector<at::Tensor>;

void run(int world_size, const std::function<void(int, const Group&, c10d::Backend&)>& fn) {
  test::run_rank_threads(
      world_size, [&](int rank, const Group& group) { fn(rank, group, *group->getBackend(c10::DeviceType::CPU)); },
      {.make_backend = comm::make_shm_backend});
}

template <class Fn>
std::string value_error_of(Fn fn) {
  try {
    fn();
    return "(no error)";
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
}

WorkPtr all_reduce(c10d::Backend& backend, Tensors tensors, ReduceOp op = ReduceOp::SUM) {
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  options.asyncOp = false;
  return backend.allreduce(tensors, options);
}

TEST(ShmArguments, RefusesWhatCannotWorkMessage) {
  run(1, [](int, const Group&, c10d::Backend& backend) {
    EXPECT_EQ(value_error_of([&] { all_reduce(backend, {}); }), "all_reduce needs at least one tensor");
    EXPECT_EQ(value_error_of([&] {
                all_reduce(backend, {at::ones({1}), at::ones({1})});
              }),
              "all_reduce on backend \"shm\" takes one tensor, got 2");
    EXPECT_EQ(value_error_of([&] { all_reduce(backend, {at::ones({1})}, ReduceOp::BAND); }),
              "all_reduce: Cannot use ReduceOp.BAND with non-integral dtype float32");
    EXPECT_EQ(value_error_of([&] { all_reduce(backend, {at::ones({1}, at::kComplexFloat)}, ReduceOp::MAX); }),
              "all_reduce does not support ReduceOp.MAX on complex tensors, got complex64");
    EXPECT_EQ(value_error_of([&] { all_reduce(backend, {at::ones({1}, at::kBool)}, ReduceOp::AVG); }),
              "all_reduce does not support ReduceOp.AVG on bool tensors");
    EXPECT_EQ(value_error_of([&] { all_reduce(backend, {at::_empty_affine_quantized({1}, at::kQInt8)}); }),
              "all_reduce does not support ReduceOp.SUM on qint8 tensors");
    Tensors one{at::ones({1})};
    EXPECT_EQ(value_error_of([&] { backend.send(one, 0, 0); }), "send: a rank cannot send to itself");
    std::vector<Tensors> lists{{at::ones({2})}};
    EXPECT_EQ(value_error_of([&] { backend.allgather(lists, one, {}); }),
              "all_gather needs tensors of 1 elements, got 2");
  });
}

TEST(ShmArguments, MovesDtypesThatNobodyCanReduce) {
  run(2, [](int rank, const Group&, c10d::Backend& backend) {
    const auto bytes = rank == 0 ? at::arange(6, at::kByte) : at::zeros({6}, at::kByte);
    Tensors tensors{bytes.view(at::kFloat8_e5m2)};
    c10d::BroadcastOptions options;
    options.asyncOp = false;
    backend.broadcast(tensors, options)->wait();
    REQUIRE(at::equal(bytes, at::arange(6, at::kByte)));
  });
}

TEST(ShmArguments, LazyConjugatesAreSeen) {
  run(2, [](int, const Group&, c10d::Backend& backend) {
    auto tensor = at::view_as_complex(at::ones({4, 2})).conj();
    REQUIRE(tensor.is_conj());
    all_reduce(backend, {tensor})->wait();
    REQUIRE(at::equal(at::view_as_real(tensor.resolve_conj()).select(1, 1), at::full({4}, -2.0)));
  });
}

TEST(ShmArguments, AverageAddsTermsThatHaveBeenScaled) {
  run(3, [](int rank, const Group&, c10d::Backend& backend) {
    const auto tensor = at::full({5}, static_cast<float>(rank) + 0.1F);
    all_reduce(backend, {tensor}, ReduceOp::AVG)->wait();
    const float third = 1.0F / 3.0F;
    volatile float sum = 0.1F * third;
    sum = sum + 1.1F * third;
    sum = sum + 2.1F * third;
    REQUIRE(tensor[4].item<float>() == sum);
  });
}

long long available_bytes() {
  return static_cast<long long>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

// 2 ranks of 4 GiB and a bit, and the page tables.
TEST(ShmArguments, MoreThanFourGiB) {
  constexpr int64_t kCount = (int64_t{4} << 30) + 12345;
  constexpr long long kNeeded = 14LL << 30;
  if (available_bytes() < kNeeded) {
    std::cout << "not run: it needs " << base::format_bytes(kNeeded) << " of free memory, there is "
              << base::format_bytes(static_cast<unsigned long long>(available_bytes())) << std::endl;
    return;
  }
  run(2, [](int rank, const Group&, c10d::Backend& backend) {
    auto tensor = at::zeros({kCount}, at::kByte);
    tensor[kCount - 1].fill_(rank + 3);
    tensor[(int64_t{1} << 32) + 1].fill_(rank + 5);
    all_reduce(backend, {tensor}, ReduceOp::MAX)->wait();
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
