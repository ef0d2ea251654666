#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/system/env.h"
#include "tests/support/fork_server/fork_server.h"
#include "tests/support/rank_processes.h"

namespace {

int run(int argc, char** argv) {
  // Timeouts that tests provoke need no files; tests of these files ask for them.
  if (!cohort::base::get_env("COHORT_TRACE_DUMP")) cohort::base::set_env("COHORT_TRACE_DUMP", "never");
  const int worker_exit = cohort::test::run_named_worker(argc, argv);
  if (worker_exit >= 0) return worker_exit;
  testing::InitGoogleTest(&argc, argv);
  for (const std::string& argument : std::vector<std::string>(argv + 1, argv + argc)) {
    constexpr std::string_view kBackend = "--backend=", kSim = "--sim=";
    if (argument.starts_with(kBackend)) cohort::base::set_env("COHORT_TEST_BACKEND", argument.substr(kBackend.size()));
    if (argument.starts_with(kSim)) cohort::base::set_env("COHORT_TEST_SIM", argument.substr(kSim.size()));
  }
  return RUN_ALL_TESTS();
}

}  // namespace

int main(int argc, char** argv) { return cohort::test::main_of_test_program(argc, argv, run); }
