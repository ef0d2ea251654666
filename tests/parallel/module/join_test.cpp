// Join itself, with joinables that count. DistributedDataParallel's: ddp/ddp_join_test.cpp.
#include "cohort/parallel/module/join.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_rank_threads;

// Adds up, over all ranks, how many count in each step.
class Counter final : public Joinable {
 public:
  explicit Counter(Group group) : group_(std::move(group)) {}

  void step() {
    notice = Join::notify_join_context(*this);
    count(1);
    if (notice) notice->wait();
  }
  std::unique_ptr<JoinHook> join_hook(const JoinOptions& options) override {
    options_seen = options;
    return std::make_unique<Hook>(*this);
  }
  c10::Device join_device() const override { return c10::kCPU; }
  Group join_process_group() const override { return group_; }

  WorkPtr notice;
  std::vector<int> counts;
  int num_posts = 0;
  bool is_last = false;
  JoinOptions options_seen;

 private:
  class Hook final : public JoinHook {
   public:
    explicit Hook(Counter& counter) : counter_(counter) {}
    void main_hook() override { counter_.count(0); }
    void post_hook(bool is_last_joiner) override {
      ++counter_.num_posts;
      counter_.is_last = is_last_joiner;
    }

   private:
    Counter& counter_;
  };

  void count(int mine) {
    const auto sum = at::full({1}, mine);
    all_reduce(sum, {.group = group_});
    counts.push_back(sum.item<int>());
  }

  Group group_;
};

// Ranks have 2, 3 and 3 steps.
int steps_of(int rank) { return rank == 0 ? 2 : 3; }

TEST(Join, RanksWithoutDataTakePartUntilAllHaveEnded) {
  run_rank_threads(3, [](int rank, const Group& group) {
    Counter first(group), second(group);
    {
      const Join join({first, second}, {.divide_by_initial_world_size = false});
      for (int i = 0; i < steps_of(rank); ++i) {
        first.step();
        second.step();
        REQUIRE(first.notice && first.notice->result().front().item<float>() == static_cast<float>(i < 2 ? 3 : 2));
        REQUIRE(!second.notice);  // one announcement per step
      }
    }
    const std::vector<int> expected{3, 3, 2};
    REQUIRE(first.counts == expected && second.counts == expected);
    REQUIRE(first.num_posts == 1 && second.num_posts == 1);
    REQUIRE(first.is_last == (rank > 0) && second.is_last == (rank > 0));
    REQUIRE(!first.options_seen.divide_by_initial_world_size);
    first.step();
    REQUIRE(!first.notice);  // outside
  });
}

TEST(Join, EarlyTerminationIsThrownOnEveryRankMessage) {
  run_rank_threads(3, [](int rank, const Group& group) {
    Counter counter(group);
    const auto error = error_of([&] {
      const Join join({counter}, {.throw_on_early_termination = true});
      for (int i = 0; i < steps_of(rank); ++i) counter.step();
    });
    REQUIRE_EQUAL(error, rank == 0 ? "Rank 0 exhausted all inputs."
                                   : "Detected at least one rank that exhausted inputs. Throwing across all ranks.");
    REQUIRE(counter.counts == (std::vector<int>{3, 3}));
    REQUIRE(counter.num_posts == 0);
    counter.step();
    REQUIRE(!counter.notice);
  });
}

TEST(Join, EvenInputsAreNotThrownAt) {
  run_rank_threads(2, [](int, const Group& group) {
    Counter counter(group);
    {
      const Join join({counter}, {.throw_on_early_termination = true});
      for (int i = 0; i < 2; ++i) counter.step();
    }
    REQUIRE(counter.num_posts == 1 && counter.is_last);
  });
}

TEST(Join, DisabledDoesNothing) {
  run_rank_threads(2, [](int, const Group& group) {
    Counter counter(group);
    {
      const Join join({counter}, {.enable = false});
      counter.step();
      REQUIRE(!counter.notice);
    }
    REQUIRE(counter.num_posts == 0);
  });
}

TEST(Join, AnExceptionLeavesAtOnce) {
  run_rank_threads(2, [](int, const Group& group) {
    Counter counter(group);
    try {
      const Join join({counter});
      counter.step();
      throw std::runtime_error("the program's own");
    } catch (const std::runtime_error& error) {
      REQUIRE_EQUAL(error.what(), "the program's own");
    }
    REQUIRE(counter.num_posts == 0 && counter.counts.size() == 1);
  });
}

TEST(Join, WrongJoinablesMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    const auto other = c10::make_intrusive<c10d::ProcessGroup>(0, 1);
    Counter counter(group), elsewhere(other);
    REQUIRE_EQUAL(error_of([] { const Join join({}); }), "The join context manager requires at least one joinable");
    REQUIRE_EQUAL(error_of([&] {
                    const Join join({counter, elsewhere});
                  }),
                  "Using join context manager with multiple process groups");
  });
}

}  // namespace
}  // namespace cohort
