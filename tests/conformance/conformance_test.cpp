// Every backend of the table, its ranks as threads and as processes.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <iostream>
#include <mutex>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/subgroups.h"
#include "tests/conformance/suite.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"

namespace cohort::test {
namespace {

void add(Report& total, const Report& report) {
  total.num_run += report.num_run;
  total.num_skipped += report.num_skipped;
  total.num_problems += report.num_problems;
  total.problems.insert(total.problems.end(), report.problems.begin(), report.problems.end());
}

void expect_conformance(const Report& total, const BackendUnderTest& backend, const std::string& tier, int floor) {
  std::cout << "conformance " << backend.name << "/" << tier << ": " << total.num_run << " cases run, "
            << total.num_skipped << " skipped\n"
            << std::flush;
  for (const auto& excuse : backend.excused) {
    std::cout << "  without " << excuse.feature << ": " << excuse.reason << "\n" << std::flush;
  }
  for (const auto& problem : total.problems) ADD_FAILURE() << problem;
  EXPECT_EQ(total.num_problems, 0);
  EXPECT_GE(total.num_run, floor) << "cases have got lost, or the floor in backends.cpp is wrong";
}

class Conformance : public testing::TestWithParam<BackendUnderTest> {};

TEST_P(Conformance, InThreads) {
  const auto& under_test = GetParam();
  Report total;
  std::mutex mutex;
  for (const int world_size : under_test.world_sizes_of_threads) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    run_rank_threads(world_size,
                     [&](int, const Group& group) {
                       const auto report =
                           run_conformance(*group->getBackend(c10::DeviceType::CPU),
                                           {.excused = under_test.excused,
                                            .store = store,
                                            .extent = world_size == 4 ? Extent::kShort : Extent::kFull});
                       const std::lock_guard lock(mutex);
                       add(total, report);
                     },
                     {.make_backend = under_test.make});
  }
  expect_conformance(total, under_test, "threads", under_test.least_cases_in_threads);
}

// Prints "cases <run> <skipped> <problems>".
void run_and_print(c10d::ProcessGroup& group, const BackendUnderTest& under_test) {
  const auto store = c10::make_intrusive<c10d::PrefixStore>("conformance/", default_group()->getStore());
  const auto report = run_conformance(*group.getBackend(c10::DeviceType::CPU),
                                      {.excused = under_test.excused, .store = store, .extent = Extent::kShort});
  for (const auto& problem : report.problems) std::cerr << problem << "\n" << std::flush;
  std::cout << "cases " << report.num_run << " " << report.num_skipped << " " << report.num_problems << "\n"
            << std::flush;
}

// Arguments: the backend's place in the table, and the ranks of a group to run in; none: the default group.
COHORT_WORKER(conforms) {
  const auto& under_test = backends_under_test().at(std::stoul(worker_arguments().at(0)));
  init_process_group({.backend = under_test.name, .timeout = std::chrono::seconds(100)});
  std::vector<int> ranks;
  for (size_t i = 1; i < worker_arguments().size(); ++i) ranks.push_back(std::stoi(worker_arguments()[i]));
  const auto group = ranks.empty() ? default_group() : new_group(ranks);
  if (is_member(group)) run_and_print(*group, under_test);
  barrier();  // rank 0 has the store
}

void add_output(Report& total, const WorkerResults& results) {
  results.expect_success();
  for (const auto& rank : results.ranks) {
    Report report;
    if (std::sscanf(rank.output.c_str(), "cases %d %d %d", &report.num_run, &report.num_skipped,
                    &report.num_problems) == 3) {
      if (report.num_problems > 0) report.problems.push_back(rank.errors);
      add(total, report);
    }
  }
}

TEST_P(Conformance, InProcesses) {
  const auto& table = backends_under_test();
  size_t index = 0;
  while (table.at(index).name != GetParam().name) ++index;
  Report total;
  const auto place = std::to_string(index);
  for (const int world_size : GetParam().world_sizes_of_processes) {
    add_output(total, run_workers("conforms", {.world_size = world_size, .arguments = {place}}));
  }
  add_output(total, run_workers("conforms", {.world_size = 3, .arguments = {place, "1", "2"}}));
  expect_conformance(total, GetParam(), "processes", GetParam().least_cases_in_processes);
}

INSTANTIATE_TEST_SUITE_P(Backends, Conformance, testing::ValuesIn(backends_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cohort::test
