// What the flight recorder holds of ranks that wait, and of how each call ended.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "cohort/shm/report/registry.h"
#include "tests/shm/ranks.h"

namespace cohort::shm {
namespace {

using State = CallRecord::State;

std::vector<CallRecord> records_of_rank(int rank) {
  const auto groups = read_process_trace("").groups;
  return groups.empty() ? std::vector<CallRecord>() : groups[0].ranks.at(static_cast<size_t>(rank)).records;
}

// False after half a minute.
bool comes_to_wait(int rank, size_t num_records) {
  for (int i = 0; i < 30'000; ++i) {
    const auto records = records_of_rank(rank);
    if (records.size() == num_records && records.back().state == State::kStarted) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

struct RecordedCall {
  OpKind kind;
  uint64_t num_inputs;  // of rank 0
  uint64_t num_outputs;
  std::function<Outcome(Group&, std::vector<float>&, const CallOptions&)> run;
};

// In each, rank 0 waits for rank 1. The last ones are too long to be recorded late.
std::vector<RecordedCall> calls_that_wait() {
  const auto all_reduce = [](size_t count) {
    return RecordedCall{OpKind::kAllReduce, count, count,
                        [count](Group& group, auto& values, const CallOptions& options) {
                          return group.all_reduce(values.data(), values.data(), {DType::kFloat32, count}, {}, options);
                        }};
  };
  return {
      {OpKind::kBarrier, 0, 0, [](Group& group, auto&, const CallOptions& options) { return group.barrier(options); }},
      all_reduce(1),
      all_reduce(1000),
      {OpKind::kBroadcast, 1, 1,
       [](Group& group, auto& values, const CallOptions& options) {
         return group.broadcast(values.data(), {DType::kFloat32, 1}, /*root=*/1, options);
       }},
      {OpKind::kReduce, 1, 1,
       [](Group& group, auto& values, const CallOptions& options) {
         return group.reduce(values.data(), values.data(), {DType::kFloat32, 1}, {}, /*root=*/0, options);
       }},
      all_reduce(5000),
      all_reduce(100'000)};
}

void expect_records_of_ranks_that_wait(bool keeps_core) {
  const CallOptions options{.keeps_core = keeps_core};
  const auto calls = calls_that_wait();
  run_threads(2, [&](Group& group) {
    std::vector<float> values(100'000);
    for (size_t i = 0; i < calls.size(); ++i) {
      if (group.rank() == 1) {
        ASSERT_TRUE(comes_to_wait(0, i + 1)) << i;
      }
      ASSERT_EQ(text_of(calls[i].run(group, values, options)), "success") << i;
    }
    const auto records = records_of_rank(group.rank());
    ASSERT_EQ(records.size(), calls.size());
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(records[i].kind, calls[i].kind) << i;
      EXPECT_EQ(records[i].state, State::kCompleted) << i;
      if (group.rank() == 0) {
        EXPECT_EQ(records[i].num_inputs, calls[i].num_inputs) << i;
        EXPECT_EQ(records[i].num_outputs, calls[i].num_outputs) << i;
      }
    }
    ASSERT_EQ(text_of(group.barrier()), "success");  // the other one has read them, too
  });
}

TEST(RecordedRanks, AreSeenWhileTheyWait) { expect_records_of_ranks_that_wait(/*keeps_core=*/false); }

TEST(RecordedRanks, AreSeenWhileTheyWaitOnCoresOfTheirOwn) { expect_records_of_ranks_that_wait(/*keeps_core=*/true); }

// One that waits for nobody, one that nobody else comes to, and one that is refused.
TEST(RecordedRanks, HaveEachCallOnce) {
  for (const bool keeps_core : {false, true}) {
    run_threads(2, [&](Group& group) {
      const CallOptions options{.keeps_core = keeps_core};
      const CallOptions briefly{.timeout = std::chrono::milliseconds(50), .keeps_core = keeps_core};
      float value = 1;
      const Elements one{DType::kFloat32, 1};
      ASSERT_EQ(text_of(group.broadcast(&value, one, /*root=*/0, options)), "success");
      if (group.rank() == 1) {
        ASSERT_TRUE(records_of_rank(1).back().is_over());
        EXPECT_NE(text_of(group.all_reduce(&value, &value, one, {}, briefly)), "success");  // rank 0 does not come
        EXPECT_NE(text_of(group.all_reduce(&value, &value, one, {}, briefly)), "success");
      }
      const auto records = records_of_rank(group.rank());
      ASSERT_EQ(records.size(), group.rank() == 1 ? 2 : 1);
      EXPECT_EQ(records[0].state, State::kCompleted);
      if (group.rank() == 1) {
        EXPECT_EQ(records[1].state, State::kFailed);
      }
    });
  }
}

}  // namespace
}  // namespace cohort::shm
