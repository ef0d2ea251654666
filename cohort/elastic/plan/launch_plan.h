/// LaunchPlan: everything that is known of a job before it starts, from the flags of `cohort run` and from the host.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/machine/cpu_topology.h"
#include "cohort/elastic/output/log_routing.h"
#include "cohort/elastic/plan/host_devices.h"
#include "cohort/elastic/plan/worker_command.h"
#include "cohort/rendezvous/environment/settings.h"

namespace cohort::elastic {

/// Everything that is decided before the job starts. Flags that mean the same on every host are stored here as they are read;
/// plan_launch fills in the rest.
struct LaunchPlan {
  rendezvous::Settings rendezvous;
  WorkerProgram program;
  LogOptions logs;
  bool logs_events = false;
  /// The signals that end the job. Others are only forwarded to the workers.
  std::vector<int> signals;
  /// The time between SIGTERM and SIGKILL.
  std::chrono::milliseconds shutdown_timeout{30'000};
  /// If positive, a worker that stays longer in uninterruptible sleep counts as failed
  /// (TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT).
  std::chrono::milliseconds stuck_timeout{0};
  /// The wait before the first restart. It doubles with each further restart, up to a minute.
  std::chrono::milliseconds restart_backoff{0};
  /// The named pipe of the watchdog timers (TORCHELASTIC_ENABLE_FILE_TIMER, TORCHELASTIC_TIMER_FILE); "" means a fresh path. If
  /// absent, no timers are watched.
  std::optional<std::string> timer_file;
  /// TORCHELASTIC_HEALTH_CHECK_PORT.
  std::optional<int> health_check_port;
  /// Whether every worker is local rank 0 and sees one GPU.
  bool virtual_local_rank = false;
  /// Values by local rank. With 0 threads OMP_NUM_THREADS stays as it is, without CPUs a worker is not bound, and with "" for
  /// GPUs CUDA_VISIBLE_DEVICES stays as it is.
  std::vector<int> num_threads;
  std::vector<std::vector<int>> cpus;
  std::vector<std::string> gpus;
  /// Says that OMP_NUM_THREADS is set, and why to this number; "" if it is not set.
  std::string threads_note;
  /// Variables added to the environment of all workers.
  std::map<std::string, std::string> variables;
};

/// The command line: torchrun's flags with its defaults, and a few of Cohort's own. Only plan_launch reads it, to make the plan.
struct LaunchFlags {
  /// The flags --nnodes, --rdzv-*, --node-rank, --master-*, --standalone.
  rendezvous::Flags rendezvous;
  std::string local_world_size = "1";
  std::string redirects = "0";
  std::string tee = "0";
  std::string local_ranks_filter;
  std::string duplicate_stdout_filters;
  std::string duplicate_stderr_filters;
  std::string event_log_handler = "null";
  std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  std::string cpu_bind = "none";
  std::string numa_binding;
  /// The GPUs of this node that workers may see, such as "0,2,3".
  std::string gpus;
  /// default, shared, tcmalloc or jemalloc; see worker_allocator.h.
  std::string allocator = "default";
  /// The flags that need no further steps after they are read.
  LaunchPlan plan;
};

/// The properties of the host.
struct HostFacts {
  HostDevices devices;
  std::vector<base::Cpu> cpus;
  std::vector<int> gpu_nodes;
  /// OMP_NUM_THREADS and CUDA_VISIBLE_DEVICES of this process.
  std::optional<std::string> num_threads;
  std::optional<std::string> visible_gpus;
};
HostFacts find_host_facts(const LaunchFlags& flags);

/// Checks the flags and makes the plan. Pure, except that it looks for the library that --allocator names. Errors name the flag
/// and its value.
base::Result<LaunchPlan> plan_launch(const LaunchFlags& flags, const HostFacts& host);

}  // namespace cohort::elastic
