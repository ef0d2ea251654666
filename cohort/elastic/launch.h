/// One job on this node, from flags to exit code: what `cohort run` does.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "cohort/base/result.h"
#include "cohort/elastic/worker_command.h"
#include "cohort/elastic/worker_environment.h"
#include "cohort/elastic/worker_group.h"

namespace cohort::elastic {

/// torchrun's flags, with its defaults. Texts are parsed by plan_launch.
struct LaunchOptions {
  std::string num_nodes = "1:1";
  std::string local_world_size = "1";
  int node_rank = 0;
  bool standalone = false;
  std::string master_address = "127.0.0.1";
  /// Not given: a free port on one node, 29500 on several.
  std::optional<int> master_port;
  std::string role = "default";
  std::string log_dir;
  std::string redirects = "0";
  std::string tee = "0";
  std::string local_ranks_filter;
  std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  std::chrono::milliseconds shutdown_timeout{30'000};
  WorkerProgram program;
};

/// Everything that is decided before anything happens.
struct LaunchPlan {
  Job job;
  LogOptions logs;
  std::vector<int> signals;
  /// 0: leave OMP_NUM_THREADS alone.
  int threads_per_rank = 0;
  /// One node and no port given: a free one is taken at the start.
  bool picks_port = false;
};

/// Checks the options. Pure but for `devices`, which describe the host; errors name the flag and its value.
base::Result<LaunchPlan> plan_launch(const LaunchOptions& options, const HostDevices& devices);

/// Runs the job and prints the report of a failure to stderr.
/// Returns the exit code: 0 if every worker ended with 0, else 1. Errors: nothing was started, or not everything.
/// Requires that this process has no other threads.
base::Result<int> launch(const LaunchOptions& options);

}  // namespace cohort::elastic
