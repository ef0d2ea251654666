#include <gtest/gtest.h>

#include "tests/support/rank_processes.h"

int main(int argc, char** argv) {
  const int worker_exit = cohort::test::run_named_worker(argc, argv);
  if (worker_exit >= 0) return worker_exit;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
