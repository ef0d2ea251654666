/// The questions of `cohort-bench`: one row in main.cpp and one source file each.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/report.h"

namespace cohort::bench {

struct Settings {
  /// Answer in under 45 s, with fewer repetitions.
  bool is_quick = false;
  /// Measure only cases with this name; empty: all. ddp-step knows it.
  std::string only_case;
  /// This program, to be started again as a rank, and the folder it lies in.
  std::string program;
  std::string program_folder;
};

struct Question {
  const char* name;
  const char* summary;
  /// Throws std::exception when it cannot be answered.
  std::vector<Row> (*run)(const Settings& settings);
};

std::vector<Row> run_compile_time(const Settings& settings);
std::vector<Row> run_ddp_overhead(const Settings& settings);
std::vector<Row> run_ddp_step(const Settings& settings);
std::vector<Row> run_start(const Settings& settings);

/// First argument that makes the program a rank of ddp-step.
inline constexpr const char* kDdpStepRank = "--ddp-step-rank";
/// Arguments: rank, the pipe commands come from, init method. Returns the exit code.
int run_ddp_step_rank(const std::vector<std::string>& arguments);

}  // namespace cohort::bench
