// What a program forgot, told once: wrapping its model, ending its groups.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/point_to_point.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::run_workers;
using testing::HasSubstr;
using testing::Not;

void train(int steps, bool exchanges) {
  auto weight = at::ones({3}).requires_grad_();
  auto bias = at::ones({3}).requires_grad_();
  for (int step = 0; step < steps; ++step) {
    (weight * 2 + bias).sum().backward();
    if (exchanges) all_reduce(weight.grad());
    weight.mutable_grad().reset();
    bias.mutable_grad().reset();
  }
}

COHORT_WORKER(trains_alone) {
  init_process_group("gloo");
  barrier();
  train(5, /*exchanges=*/false);
  destroy_process_group();
}

TEST(Forgotten, UnwrappedModelIsToldOnceMessage) {
  const auto results = run_workers("trains_alone");
  results.expect_success();
  EXPECT_EQ(
      results[0].errors,
      "[cohort] warning: rank 0 of 2 has run two backward passes and exchanged no gradients: each rank trains its own "
      "copy of the model. Wrap the model in cohort::DistributedDataParallel, or all_reduce the gradients yourself. If "
      "your program adds up the gradients of several backward passes before it does so, all is well.\n");
  EXPECT_EQ(results[1].errors, "");
}

COHORT_WORKER(exchanges_by_hand) {
  init_process_group("gloo");
  train(5, /*exchanges=*/true);
  destroy_process_group();
  train(5, /*exchanges=*/false);
}

TEST(Forgotten, GradientsExchangedByHandAreFine) {
  const auto results = run_workers("exchanges_by_hand");
  results.expect_success();
  EXPECT_EQ(results[0].errors + results[1].errors, "");
}

TEST(Forgotten, OneRankTrainsAloneWithoutAWarning) {
  const auto results = run_workers("trains_alone", {.world_size = 1});
  results.expect_success();
  EXPECT_EQ(results[0].errors, "");
}

COHORT_WORKER(ends_without_destroy) {
  init_process_group("gloo");
  barrier();
}

TEST(Forgotten, DestroyIsToldAtExitMessage) {
  const auto results = run_workers("ends_without_destroy", {.loads_anew = true});
  results.expect_success();
  EXPECT_EQ(results[0].errors,
            "[cohort] warning: the program ended without destroy_process_group(); its groups are released now. Call it "
            "before main returns, when every rank is done.\n");
  EXPECT_EQ(results[1].errors, "");
}

// Arguments: the backend, and what is done with the works.
COHORT_WORKER(starts_works) {
  init_process_group(test::worker_arguments().at(0).c_str());
  const auto& what = test::worker_arguments().at(1);
  const auto tensor = at::ones({4});
  std::vector<WorkPtr> works;
  for (int i = 0; i < 5; ++i) works.push_back(all_reduce(tensor, {.async_op = true}));
  works.push_back(broadcast(tensor, 0, {.async_op = true}));
  for (const auto& work : works) {
    if (what == "waits") work->wait();
    if (what == "asks") REQUIRE(work->isCompleted() || true);
    if (what == "takes futures") work->getFuture()->wait();
  }
  barrier();
  // The thread that has run a Work lets it go a moment later than its result is there.
  const bool looks_on = what == "drops" || what == "exits";
  for (const auto& work : works) {
    while (looks_on && work.use_count() > 1) std::this_thread::yield();
  }
  works.clear();
  if (what != "exits") destroy_process_group();
}

TEST(Forgotten, WorksThatNobodyWaitedForAreNamedMessage) {
  for (const std::string backend : {"shm", "gloo"}) {
    const auto errors_of = [&](const std::string& what) {
      const auto results = run_workers("starts_works", {.arguments = {backend, what}, .loads_anew = what == "exits"});
      results.expect_success();
      EXPECT_EQ(results[1].errors, "");
      return results[0].errors;
    };
    SCOPED_TRACE(backend);
    const std::string warning =
        "[cohort] warning: nobody has called wait() on the Work of all_reduce #1 on group \"default_pg\", all_reduce "
        "#2 on "
        "group \"default_pg\", all_reduce #3 on group \"default_pg\", all_reduce #4 on group \"default_pg\", 2 more: "
        "their "
        "tensors may have been read before the results were there. Call wait() on every Work before you use its "
        "tensors.\n";
    EXPECT_EQ(errors_of("drops"), warning);
    EXPECT_EQ(
        errors_of("exits"),
        "[cohort] warning: the program ended without destroy_process_group(); its groups are released now. Call it "
        "before main returns, when every rank is done.\n" +
            warning);
    for (const std::string what : {"waits", "asks", "takes futures"}) EXPECT_EQ(errors_of(what), "") << what;
  }
}

// Rank 0 sends and rank 1 receives; arguments as above.
COHORT_WORKER(starts_transfers) {
  init_process_group(test::worker_arguments().at(0).c_str());
  const auto& what = test::worker_arguments().at(1);
  const auto tensors = at::full({5, 4}, 1.0 - get_rank());
  std::vector<WorkPtr> works;
  for (int i = 0; i < 5; ++i) works.push_back(get_rank() == 0 ? isend(tensors[i], 1) : irecv(tensors[i], 0));
  for (size_t i = 0; i < works.size(); ++i) {
    if (what == "waits" || (what == "drops the second" && i != 1)) works[i]->wait();
    if (what == "asks") REQUIRE(works[i]->isCompleted() || true);
    if (what == "takes futures") works[i]->getFuture()->wait();
  }
  // Messages that are not received are lost when the group ends.
  while (!tensors.eq(1).all().item<bool>()) std::this_thread::yield();
  if (what == "drops with a collective" && get_rank() == 0) all_reduce(at::ones({4}), {.async_op = true});
  if (what == "drops with a collective" && get_rank() == 1) all_reduce(at::ones({4}));
  works.clear();
  barrier();
  destroy_process_group();
}

TEST(Forgotten, TransfersThatNobodyWaitedForAreNamedByTheirRankMessage) {
  const std::string end =
      ": their tensors may have been read before the results were there. Call wait() on every Work before you use its "
      "tensors.\n";
  const std::string start = "[cohort] warning: nobody has called wait() on the Work of ";
  const auto on = [](const std::string& operation, int i) {
    return operation + " #" + std::to_string(i) + " on group \"default_pg\"";
  };
  for (const std::string backend : {"shm", "gloo"}) {
    SCOPED_TRACE(backend);
    const auto errors_of = [&](const std::string& what) {
      const auto results = run_workers("starts_transfers", {.arguments = {backend, what}});
      results.expect_success();
      return std::vector{results[0].errors, results[1].errors};
    };
    EXPECT_THAT(errors_of("drops the second"),
                testing::ElementsAre(start + on("send", 2) + end, start + on("recv", 2) + end));
    const auto four_of = [&](const std::string& operation) {
      return on(operation, 1) + ", " + on(operation, 2) + ", " + on(operation, 3) + ", " + on(operation, 4);
    };
    EXPECT_THAT(errors_of("drops"), testing::ElementsAre(start + four_of("send") + ", 1 more" + end,
                                                         start + four_of("recv") + ", 1 more" + end));
    EXPECT_THAT(errors_of("drops with a collective"),
                testing::ElementsAre(start + on("all_reduce", 1) + ", " + on("send", 1) + ", " + on("send", 2) + ", " +
                                         on("send", 3) + ", 2 more" + end,
                                     start + four_of("recv") + ", 1 more" + end));
    for (const std::string what : {"waits", "asks", "takes futures"}) {
      if (what == "takes futures" && backend == "gloo") continue;  // whose sends and receives have none
      EXPECT_THAT(errors_of(what), testing::ElementsAre("", "")) << what;
    }
  }
}

COHORT_WORKER(fails_without_destroy) {
  init_process_group("gloo");
  barrier();
  std::exit(3);
}

TEST(Forgotten, DestroyIsNotMissedAfterAFailure) {
  const auto results = run_workers("fails_without_destroy", {.loads_anew = true});
  EXPECT_EQ(results[0].exit_code, 3);
  EXPECT_EQ(results[0].errors, "");
}

}  // namespace
}  // namespace cohort
