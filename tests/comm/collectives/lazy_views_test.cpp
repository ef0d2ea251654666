// Collectives on views whose memory is not their content: conj() and _neg_view() set a bit and copy nothing.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "cohort/comm/collectives/arguments.h"
#include "cohort/comm/collectives/coalescing.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/point_to_point.h"
#include "tests/support/marks.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::run_workers;

constexpr int64_t kCount = 6;

at::Tensor conjugated(const at::Tensor& values) { return values.conj().resolve_conj().conj(); }

// A view with the content of `values` and other memory.
at::Tensor lazy(const at::Tensor& values) {
  return values.is_complex() ? conjugated(values) : at::_neg_view(values.neg());
}

// Half of the ranks have views, so that both kinds meet.
at::Tensor numbers(int rank, at::ScalarType dtype, int64_t count = kCount) {
  auto values = (at::arange(count, at::kDouble) + 10 * rank + 1).to(dtype);
  return values.is_complex() ? values + values * c10::complex<double>(0, 2 + rank) : values;
}

at::Tensor given(int rank, at::ScalarType dtype, int64_t count = kCount) {
  const auto values = numbers(rank, dtype, count);
  return rank % 2 == 0 ? lazy(values) : values;
}

at::Tensor room(at::ScalarType dtype, int64_t count = kCount) { return lazy(at::zeros({count}, dtype)); }

void check_equal(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  if (at::equal(actual, expected)) return;
  throw std::runtime_error(c10::str(what, ": expected ", expected, ", got ", actual));
}

class Views {
 public:
  Views(at::ScalarType dtype, bool async_op) : dtype_(dtype), async_op_(async_op) {
    for (int rank = 0; rank < size_; ++rank) all_.push_back(numbers(rank, dtype));
    sum_ = at::stack(all_).sum(0);
  }

  void reduce_all() const {
    const auto tensor = given(rank_, dtype_);
    wait(all_reduce(tensor, {.async_op = async_op_}));
    check_equal(tensor, sum_, name("all_reduce"));
    const auto to_root = given(rank_, dtype_);
    wait(reduce(to_root, 1, {.async_op = async_op_}));
    if (rank_ == 1) check_equal(to_root, sum_, name("reduce"));
    const TensorList both{given(rank_, dtype_), given(rank_, dtype_, 3)};
    wait(all_reduce_coalesced(both, {.async_op = async_op_}));
    check_equal(both[0], sum_, name("all_reduce_coalesced"));
    check_equal(both[1], sum_.narrow(0, 0, 3), name("all_reduce_coalesced"));
  }

  void move() const {
    for (const int root : {0, 1}) {
      const auto tensor = rank_ == root ? given(rank_, dtype_) : room(dtype_);
      wait(broadcast(tensor, root, {.async_op = async_op_}));
      check_equal(tensor, all_[root], name("broadcast"));
    }
    auto outputs = rooms();
    wait(all_gather(outputs, given(rank_, dtype_), {.async_op = async_op_}));
    check_list(outputs, all_, "all_gather");
    const auto flat = room(dtype_, kCount * size_);
    wait(all_gather_single(flat, given(rank_, dtype_), {.async_op = async_op_}));
    check_equal(flat, at::cat(all_), name("all_gather_single"));
    outputs = rank_ == 0 ? rooms() : TensorList();
    wait(gather(given(rank_, dtype_), outputs, 0, {.async_op = async_op_}));
    if (rank_ == 0) check_list(outputs, all_, "gather");
    const auto output = room(dtype_);
    wait(scatter(output, rank_ == 1 ? lists() : TensorList(), 1, {.async_op = async_op_}));
    check_equal(output, all_[rank_], name("scatter"));
  }

  void exchange() const {
    const auto output = room(dtype_);
    wait(reduce_scatter(output, lists(), {.async_op = async_op_}));
    check_equal(output, all_[rank_] * size_, name("reduce_scatter"));
    wait(reduce_scatter_single(output, lazy(at::cat(all_)), {.async_op = async_op_}));
    check_equal(output, all_[rank_] * size_, name("reduce_scatter_single"));
    const auto outputs = rooms();
    wait(all_to_all(outputs, lists(), {.async_op = async_op_}));
    for (const auto& received : outputs) check_equal(received, all_[rank_], name("all_to_all"));
    const auto whole = room(dtype_, kCount * size_);
    wait(all_to_all_single(whole, lazy(at::cat(all_)), {}, {}, {.async_op = async_op_}));
    check_equal(whole, at::cat(TensorList(size_, all_[rank_])), name("all_to_all_single"));
    const auto received = room(dtype_);
    const auto work = irecv(received, (rank_ + 1) % size_);
    send(given(rank_, dtype_), (rank_ + size_ - 1) % size_);
    work->wait();
    check_equal(received, all_[(rank_ + 1) % size_], name("irecv"));
  }

 private:
  void wait(const WorkPtr& work) const {
    if (async_op_) work->wait();
  }
  std::string name(const char* operation) const { return c10::str(operation, " of ", dtype_); }
  TensorList rooms() const { return TensorList{room(dtype_), room(dtype_), room(dtype_)}; }
  TensorList lists() const {
    TensorList list;
    for (const auto& values : all_) list.push_back(lazy(values));
    return list;
  }
  void check_list(const TensorList& actual, const TensorList& expected, const char* operation) const {
    for (size_t i = 0; i < actual.size(); ++i) check_equal(actual[i], expected[i], name(operation));
  }

  const at::ScalarType dtype_;
  const bool async_op_;
  const int rank_ = get_rank();
  const int size_ = get_world_size();
  TensorList all_;
  at::Tensor sum_;
};

void run_on(const std::string& backend) {
  init_process_group(backend.c_str());
  for (const auto dtype : {at::kComplexFloat, at::kComplexDouble, at::kFloat, at::kLong}) {
    for (const bool async_op : {false, true}) {
      const Views views(dtype, async_op);
      views.reduce_all();
      views.move();
      views.exchange();
    }
  }
}

COHORT_WORKER(lazy_views_on_shm) { run_on("shm"); }
COHORT_WORKER(lazy_views_on_gloo) { run_on("gloo"); }

BACKEND(shm)
TEST(LazyViews, AreReadAndWrittenOnShm) { run_workers("lazy_views_on_shm", {.world_size = 3}).expect_success(); }
BACKEND(gloo)
TEST(LazyViews, AreReadAndWrittenOnGloo) { run_workers("lazy_views_on_gloo", {.world_size = 3}).expect_success(); }

class OthersBackend final : public c10d::Backend {
 public:
  OthersBackend() : c10d::Backend(0, 1) {}
};

TEST(LazyViews, BackendsOfOthersReadACopyOfReals) {
  const OthersBackend backend;
  const auto values = numbers(0, at::kComplexFloat);
  EXPECT_TRUE(at::equal(comm::sent(backend, lazy(values)), at::view_as_real(values)));
  const auto negated = comm::sent(backend, lazy(numbers(0, at::kFloat)));
  EXPECT_FALSE(negated.is_neg());
  EXPECT_TRUE(at::equal(negated, numbers(0, at::kFloat)));
  EXPECT_TRUE(comm::written(backend, values, "all_reduce").is_alias_of(values));
}

TEST(LazyViews, BackendsOfOthersDoNotWriteThemMessage) {
  const OthersBackend backend;
  EXPECT_EQ(test::error_of([&] { comm::written(backend, lazy(numbers(0, at::kComplexFloat)), "all_reduce"); }),
            "[cohort] all_reduce cannot write to a lazily conjugated tensor on cpu\n"
            "  hint: give it tensor.resolve_conj().resolve_neg(), and read the result there");
  EXPECT_EQ(test::error_of([&] { comm::written(backend, lazy(numbers(0, at::kFloat)), "irecv"); }),
            "[cohort] irecv cannot write to a lazily negated tensor on cpu\n"
            "  hint: give it tensor.resolve_conj().resolve_neg(), and read the result there");
}

}  // namespace
}  // namespace cohort
