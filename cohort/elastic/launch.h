/// One job on this node, from flags to exit code: what `cohort run` does.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/cpu_topology.h"
#include "cohort/base/result.h"
#include "cohort/elastic/console.h"
#include "cohort/elastic/host_devices.h"
#include "cohort/elastic/log_routing.h"
#include "cohort/elastic/worker_command.h"
#include "cohort/rendezvous/settings.h"

namespace cohort::elastic {

/// torchrun's flags, with its defaults, and a few of our own. Texts are parsed by plan_launch.
struct LaunchOptions {
  /// --nnodes, --rdzv-*, --node-rank, --master-*, --local-addr, --role, --max-restarts, --standalone.
  rendezvous::Flags rendezvous;
  std::string local_world_size = "1";
  std::string log_dir;
  std::string redirects = "0";
  std::string tee = "0";
  std::string local_ranks_filter;
  std::string duplicate_stdout_filters;
  std::string duplicate_stderr_filters;
  std::string event_log_handler = "null";
  std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  std::chrono::milliseconds shutdown_timeout{30'000};
  /// TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT; 0: none.
  std::chrono::milliseconds stuck_timeout{0};
  /// TORCHELASTIC_ENABLE_FILE_TIMER, and TORCHELASTIC_TIMER_FILE: "" for a fresh path.
  bool watches_timers = false;
  std::string timer_file;
  /// TORCHELASTIC_HEALTH_CHECK_PORT.
  std::optional<int> health_check_port;
  /// The wait before the first restart; doubled for each one more, up to a minute.
  std::chrono::milliseconds restart_backoff{0};
  std::string cpu_bind = "none";
  std::string numa_binding;
  /// "0,2,3": the GPUs of this node that workers may see.
  std::string gpus;
  bool virtual_local_rank = false;
  /// default, shared, tcmalloc or jemalloc; see worker_allocator.h.
  std::string allocator = "default";
  WorkerProgram program;
};

/// What the host is like.
struct HostFacts {
  HostDevices devices;
  std::vector<base::Cpu> cpus;
  std::vector<int> gpu_nodes;
  /// OMP_NUM_THREADS and CUDA_VISIBLE_DEVICES of this process.
  std::optional<std::string> num_threads;
  std::optional<std::string> visible_gpus;
};
HostFacts find_host_facts(const LaunchOptions& options);

/// Everything that is decided before anything happens.
struct LaunchPlan {
  rendezvous::Settings rendezvous;
  int local_world_size = 1;
  LogOptions logs;
  std::vector<int> signals;
  bool logs_events = false;
  /// By local rank. Threads: 0 leaves OMP_NUM_THREADS alone. CPUs: empty binds to none. GPUs: "" leaves
  /// CUDA_VISIBLE_DEVICES alone.
  std::vector<int> num_threads;
  std::vector<std::vector<int>> cpus;
  std::vector<std::string> gpus;
  /// What --allocator adds to the workers' environment.
  std::map<std::string, std::string> allocator_variables;
};

/// Checks the options. Pure, but for a look for the library that --allocator names; errors name the flag and its value.
base::Result<LaunchPlan> plan_launch(const LaunchOptions& options, const HostFacts& host);

/// Runs the job and prints the report of a failure to stderr.
/// Returns the exit code: 0 if every worker ended with 0, else 1. Errors: nothing was started, or not everything.
/// Requires that this process has no other threads. Leaves the signals of `plan` ignored: the process should end now.
base::Result<int> launch(const LaunchOptions& options, const LaunchPlan& plan, Consoles& consoles);

}  // namespace cohort::elastic
