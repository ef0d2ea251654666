#include "cohort/comm/report/flight_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <thread>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "cohort/base/file/file.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/comm/group/subgroups.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"
#include "tests/support/temporary_folder.h"

namespace cohort {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(FlightRecorder, IsEmptyWithoutGroups) {
  EXPECT_THAT(comm::dump_flight_recorder(),
              StartsWith("{\"version\":\"2.10\",\"comm_lib_version\":\"shm\",\"pg_config\":{}"));
  EXPECT_THAT(comm::dump_flight_recorder(), HasSubstr("\"entries\":[\n]}\n"));
  EXPECT_THAT(comm::dump_flight_recorder_text(), HasSubstr(" UTC\n\nno group\n"));
}

TEST(FlightRecorder, WritesFiles) {
  const test::TemporaryFolder folder;
  const std::string path = comm::save_flight_recorder(folder / "run_");
  EXPECT_THAT(path, StartsWith(folder / "run_pid"));
  EXPECT_THAT(base::read_file(path).value(), HasSubstr("no group\n"));
  comm::save_chrome_trace(folder / "trace.json");
  EXPECT_THAT(base::read_file(folder / "trace.json").value(), HasSubstr("\"traceEvents\":[\n]}\n"));
}

TEST(FlightRecorder, PathThatCannotBeWrittenMessage) {
  EXPECT_THAT(
      test::error_of([] { comm::save_flight_recorder("/proc/cannot/run_"); }),
      StartsWith("[cohort] the flight recorder cannot be written to files that begin with \"/proc/cannot/run_\"; the "
                 "warning before this one says why"));
  EXPECT_THAT(test::error_of([] { comm::save_chrome_trace("/proc/cannot.json"); }),
              StartsWith("[cohort] cannot write \"/proc/cannot.json\"\n  caused by: "));
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

COHORT_WORKER(recorded_rank) {
  init_process_group("shm");
  at::Tensor tensor = at::ones({3, 5});
  all_reduce(tensor);
  Group reversed = new_group({1, 0});
  broadcast(tensor, 1, {.group = reversed});
  all_reduce(tensor, {.async_op = true})->wait();
  barrier();
  const std::string dump = comm::dump_flight_recorder();
  REQUIRE(has(dump, R"("name":"0","desc":"default_pg","ranks":"[0, 1]")"));
  REQUIRE(has(dump, R"("profiling_name":"shm:all_reduce")"));
  REQUIRE(has(dump, R"("input_sizes":[[15]],"input_dtypes":["Float"])"));
  REQUIRE(has(dump, R"("frames":[{"name":)"));
  REQUIRE(has(dump, R"("profiling_name":"shm:broadcast")"));
  const std::string text = comm::dump_flight_recorder_text();
  REQUIRE(has(text, "group \"default_pg\" (name \"0\"), 2 ranks\n"));
  REQUIRE(has(text, "all_reduce(SUM) of 15 float32"));
  reversed.reset();
  destroy_process_group();
  REQUIRE(has(comm::dump_flight_recorder_text(), "no group\n"));
}

TEST(FlightRecorder, HoldsTheOperationsOfEveryRank) {
  test::run_workers("recorded_rank", {.world_size = 2}).expect_success();
}

COHORT_WORKER(late_rank) {
  init_process_group("shm");
  at::Tensor tensor = at::ones({4});
  all_reduce(tensor);
  while (get_rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
  const std::string error = test::error_of([&] { barrier({.timeout = std::chrono::milliseconds(500)}); });
  std::cout << error << "\nended\n";
  std::_Exit(0);
}

TEST(FlightRecorder, IsWrittenWhenAnOperationTimesOut) {
  const test::TemporaryFolder folder;
  test::Workers workers(
      "late_rank",
      {.world_size = 2, .environment = {{"COHORT_TRACE_FILE", folder / "run_"}, {"COHORT_TRACE_DUMP", "timeout"}}});
  workers.wait_for_output(0, "\nended\n");
  workers.signal(1, SIGKILL);
  EXPECT_THAT(workers.wait()[0].output, HasSubstr("see what each rank of this host did in " + (folder / "run_0.txt")));
  const std::string text = base::read_file(folder / "run_0.txt").value();
  EXPECT_THAT(text, HasSubstr("written because of a timeout: barrier on group \"default_pg\"\n"));
  EXPECT_THAT(text, HasSubstr("rank 1 has not called it; its last one is #"));
}

}  // namespace
}  // namespace cohort
