// The shorter way of synchronous calls on simple tensors, and what does not go that way.
#include "cohort/comm/backend/direct_collectives.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>

#include "cohort/comm/collectives/coalescing.h"
#include "cohort/comm/registry/backends.h"
#include "tests/comm/shm/shm_threads.h"
#include "tests/support/marks.h"

PLACE_OF_FILE(own)

namespace cohort::test {
namespace {

using comm::DirectCollectives;

constexpr int kRanks = 3;

// Element i of rank r: 10 r + i.
at::Tensor values(int rank, int64_t count, at::ScalarType dtype = at::kFloat) {
  return (at::arange(count) + 10 * rank).to(dtype);
}

void expect_values(const at::Tensor& found, const at::Tensor& expected) {
  EXPECT_TRUE(at::equal(found, expected.to(found.scalar_type()))) << found << " instead of " << expected;
}

template <class Fn>
void run_direct_ranks(Fn fn) {
  run_shm_threads(kRanks, [&](int rank, const Group& group, c10d::Backend& backend) {
    auto* const direct = comm::direct_collectives(backend);
    ASSERT_NE(direct, nullptr);
    fn(rank, group, backend, *direct);
  });
}

TEST(DirectCollectives, RunSimpleTensorsAtOnce) {
  run_direct_ranks([](int rank, const Group&, c10d::Backend& backend, DirectCollectives& direct) {
    const auto before = backend.getSequenceNumberForGroup();
    const auto i = at::arange(4);

    auto tensor = values(rank, 4);
    EXPECT_TRUE(direct.all_reduce_now(tensor, ReduceOp::SUM));
    expect_values(tensor, 30 + 3 * i);

    tensor = values(rank, 4, at::kLong);
    EXPECT_TRUE(direct.all_reduce_now(tensor, ReduceOp::MAX));
    expect_values(tensor, 20 + i);

    tensor = values(rank, 4);
    EXPECT_TRUE(direct.broadcast_now(tensor, 1));
    expect_values(tensor, 10 + i);

    tensor = values(rank, 4);
    EXPECT_TRUE(direct.reduce_now(tensor, ReduceOp::SUM, 2));
    if (rank == 2) expect_values(tensor, 30 + 3 * i);

    auto whole = at::zeros({12});
    EXPECT_TRUE(direct.all_gather_now(whole, values(rank, 4)));
    expect_values(whole, at::cat({values(0, 4), values(1, 4), values(2, 4)}));

    tensor = at::zeros({4});
    EXPECT_TRUE(direct.reduce_scatter_now(tensor, values(rank, 12), ReduceOp::SUM));
    expect_values(tensor, 30 + 3 * (i + 4 * rank));

    tensor = at::zeros({6});
    EXPECT_TRUE(direct.all_to_all_now(tensor, values(rank, 6)));
    const auto mine = at::arange(2) + 2 * rank;
    expect_values(tensor, at::cat({mine, mine + 10, mine + 20}));

    EXPECT_TRUE(direct.barrier_now());
    EXPECT_EQ(backend.getSequenceNumberForGroup(), before + 8);
  });
}

TEST(DirectCollectives, LeaveOtherTensorsToTheOrdinaryWay) {
  run_direct_ranks([](int, const Group&, c10d::Backend& backend, DirectCollectives& direct) {
    const auto before = backend.getSequenceNumberForGroup();
    const std::vector<at::Tensor> others = {at::Tensor(),
                                            at::zeros({4, 4}).t().slice(0, 0, 2),
                                            at::zeros({1}).expand({4}),
                                            at::zeros({4}, at::kComplexFloat),
                                            at::zeros({4}, at::kComplexFloat).conj(),
                                            at::zeros({4}).to_sparse(),
                                            at::zeros({4}).to(at::kMeta)};
    for (const auto& tensor : others) {
      EXPECT_FALSE(direct.all_reduce_now(tensor, ReduceOp::SUM));
      EXPECT_FALSE(direct.broadcast_now(tensor, 0));
      EXPECT_FALSE(direct.reduce_now(tensor, ReduceOp::SUM, 0));
    }
    EXPECT_FALSE(direct.all_reduce_now(at::zeros({4}).to(at::kFloat8_e5m2), ReduceOp::SUM));
    EXPECT_FALSE(direct.reduce_now(at::zeros({4}).to(at::kFloat8_e5m2), ReduceOp::SUM, 0));

    const auto whole = at::zeros({12});
    const std::vector<at::Tensor> parts = {at::zeros({3}), at::zeros({4}, at::kLong), whole.slice(0, 0, 4),
                                           at::zeros({4, 2}).select(1, 0)};
    for (const auto& part : parts) {
      EXPECT_FALSE(direct.all_gather_now(whole, part));
      EXPECT_FALSE(direct.reduce_scatter_now(part, whole, ReduceOp::SUM));
    }
    EXPECT_FALSE(direct.all_to_all_now(whole, whole));
    EXPECT_FALSE(direct.all_to_all_now(whole, at::zeros({9})));
    EXPECT_FALSE(direct.all_to_all_now(at::zeros({4}), at::zeros({4})));  // no equal parts
    EXPECT_EQ(backend.getSequenceNumberForGroup(), before);
  });
}

// c10d's functions on rank 1, the shorter way on the others.
TEST(DirectCollectives, MeetRanksThatGoTheOrdinaryWay) {
  run_direct_ranks([](int rank, const Group&, c10d::Backend& backend, DirectCollectives& direct) {
    const bool is_ordinary = rank == 1;
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kLong, at::kBool}) {
      auto part = values(rank, 4, dtype);
      auto whole = values(rank, 12, dtype);
      std::vector<at::Tensor> parts{part};
      const auto op = dtype == at::kBool ? ReduceOp::MAX : ReduceOp::SUM;
      const auto call = [&](bool has_run, const std::function<WorkPtr()>& ordinary) {
        if (is_ordinary) ordinary()->wait();
        EXPECT_EQ(has_run, !is_ordinary);
      };
      call(!is_ordinary && direct.all_reduce_now(part, op), [&] {
        c10d::AllreduceOptions options;
        options.reduceOp = op;
        return backend.allreduce(parts, options);
      });
      call(!is_ordinary && direct.broadcast_now(part, 2), [&] {
        c10d::BroadcastOptions options;
        options.rootRank = 2;
        return backend.broadcast(parts, options);
      });
      call(!is_ordinary && direct.reduce_now(part, op, 1), [&] {
        c10d::ReduceOptions options;
        options.reduceOp = op;
        options.rootRank = 1;
        return backend.reduce(parts, options);
      });
      call(!is_ordinary && direct.all_gather_now(whole, part),
           [&] { return backend._allgather_base(whole, part, {}); });
      call(!is_ordinary && direct.reduce_scatter_now(part, whole, op), [&] {
        c10d::ReduceScatterOptions options;
        options.reduceOp = op;
        return backend._reduce_scatter_base(part, whole, options);
      });
      // There and back.
      auto exchanged = at::zeros_like(whole);
      auto returned = at::zeros_like(whole);
      std::vector<int64_t> equal_splits;
      call(!is_ordinary && direct.all_to_all_now(exchanged, whole),
           [&] { return backend.alltoall_base(exchanged, whole, equal_splits, equal_splits, {}); });
      call(!is_ordinary && direct.all_to_all_now(returned, exchanged),
           [&] { return backend.alltoall_base(returned, exchanged, equal_splits, equal_splits, {}); });
      expect_values(returned, whole);
      call(!is_ordinary && direct.barrier_now(), [&] { return backend.barrier({}); });
    }
  });
}

TEST(DirectCollectives, WaitForWhatIsQueuedBeforeThem) {
  std::latch has_looked(kRanks);
  run_direct_ranks([&](int rank, const Group& group, c10d::Backend& backend, DirectCollectives& direct) {
    auto first = values(rank, 4);
    auto second = values(rank, 4);
    std::vector<WorkPtr> works;
    // Of two, one stays in the queue while the other waits for rank 0.
    if (rank > 0) {
      works = {reduce_on(backend, {first}, Mode::kAsync), reduce_on(backend, {second}, Mode::kAsync)};
      EXPECT_FALSE(direct.all_reduce_now(second, ReduceOp::SUM));
      EXPECT_FALSE(direct.barrier_now());
      EXPECT_EQ(backend.getSequenceNumberForGroup(), 2);
    }
    has_looked.arrive_and_wait();
    if (rank == 0) works = {reduce_on(backend, {first}, Mode::kAsync), reduce_on(backend, {second}, Mode::kAsync)};
    all_reduce(second, {.group = group});
    expect_values(second, 3 * (30 + 3 * at::arange(4)));
    for (const auto& work : works) work->wait();
    expect_values(first, 30 + 3 * at::arange(4));
  });
}

TEST(DirectCollectives, AreNotTakenWhileSomebodyProfiles) {
  static std::atomic<int> num_spans;
  num_spans = 0;
  run_direct_ranks([](int rank, const Group& group, c10d::Backend&, DirectCollectives& direct) {
    const auto count = [](const at::RecordFunction& span) -> std::unique_ptr<at::ObserverContext> {
      num_spans += std::string(span.name()) == "shm:all_reduce";
      return nullptr;
    };
    const auto handle =
        at::addThreadLocalCallback(at::RecordFunctionCallback(count).scopes({at::RecordScope::USER_SCOPE}));
    auto tensor = values(rank, 4);
    EXPECT_FALSE(direct.all_reduce_now(tensor, ReduceOp::SUM));
    all_reduce(tensor, {.group = group});
    expect_values(tensor, 30 + 3 * at::arange(4));
    at::removeCallback(handle);
    EXPECT_TRUE(direct.all_reduce_now(tensor, ReduceOp::SUM));
  });
  EXPECT_EQ(num_spans, kRanks);
}

TEST(DirectCollectives, AreNotTakenByWhoCoalesces) {
  run_direct_ranks([](int rank, const Group& group, c10d::Backend& backend, DirectCollectives&) {
    auto tensor = values(rank, 4);
    CoalescingManager manager({.group = group});
    all_reduce(tensor, {.group = group});
    EXPECT_EQ(backend.getSequenceNumberForGroup(), 0);
    expect_values(tensor, values(rank, 4));
    manager.finish();
    expect_values(tensor, 30 + 3 * at::arange(4));
  });
}

TEST(DirectCollectives, RefuseWhatTheOrdinaryWayRefusesMessage) {
  run_direct_ranks([](int, const Group&, c10d::Backend& backend, DirectCollectives& direct) {
    auto tensor = at::zeros({4});
    const auto text = text_of_error([&] { direct.all_reduce_now(tensor, ReduceOp::BAND); });
    EXPECT_EQ(text, "[cohort] all_reduce: Cannot use ReduceOp.BAND with non-integral dtype float32");
    EXPECT_EQ(text, text_of_error([&] { reduce_on(backend, {tensor}, Mode::kSync, ReduceOp::BAND); }));
    EXPECT_EQ(backend.getSequenceNumberForGroup(), 0);
  });
}

// Here of calls that go the ordinary way.
TEST(DirectCollectives, OthersThrowWhatFails) {
  run_direct_ranks([](int rank, const Group& group, c10d::Backend&, DirectCollectives&) {
    const auto tensor = at::zeros({rank == 1 ? 5 : 4, 2}).select(1, 0);
    EXPECT_THROW(all_reduce(tensor, {.group = group}), c10::DistBackendError);
  });
}

// A failure is thrown by the call.
TEST(DirectCollectives, ThrowWhatFails) {
  run_direct_ranks([](int rank, const Group&, c10d::Backend&, DirectCollectives& direct) {
    auto tensor = values(rank, rank == 1 ? 5 : 4);
    EXPECT_THROW(direct.all_reduce_now(tensor, ReduceOp::SUM), c10::DistBackendError);
  });
}

}  // namespace
}  // namespace cohort::test
