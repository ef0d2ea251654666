/// LaunchPlan: all that is known of a job before anything happens, from the flags of `cohort run` and from the host.
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
#include "cohort/rendezvous/settings.h"

namespace cohort::elastic {

/// Everything that is decided before anything happens. Flags that mean the same on every host stand here as they are read;
/// plan_launch completes it.
struct LaunchPlan {
  rendezvous::Settings rendezvous;
  WorkerProgram program;
  LogOptions logs;
  bool logs_events = false;
  /// These end the job; others that arrive are only passed on to the workers.
  std::vector<int> signals;
  /// From SIGTERM to SIGKILL.
  std::chrono::milliseconds shutdown_timeout{30'000};
  /// > 0: a worker that is longer in uninterruptible sleep is a failure (TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT).
  std::chrono::milliseconds stuck_timeout{0};
  /// The wait before the first restart; doubled for each one more, up to a minute.
  std::chrono::milliseconds restart_backoff{0};
  /// The named pipe of the watchdog timers (TORCHELASTIC_ENABLE_FILE_TIMER, TORCHELASTIC_TIMER_FILE), "" for a fresh path; if
  /// absent, no timer is watched.
  std::optional<std::string> timer_file;
  /// TORCHELASTIC_HEALTH_CHECK_PORT.
  std::optional<int> health_check_port;
  /// Every worker is local rank 0 and sees one GPU.
  bool virtual_local_rank = false;
  /// By local rank. Threads: 0 leaves OMP_NUM_THREADS alone. CPUs: empty binds to none. GPUs: "" leaves
  /// CUDA_VISIBLE_DEVICES alone.
  std::vector<int> num_threads;
  std::vector<std::vector<int>> cpus;
  std::vector<std::string> gpus;
  /// Says that OMP_NUM_THREADS is set, and why to this number; "" where it is not.
  std::string threads_note;
  /// Added to the environment of all workers.
  std::map<std::string, std::string> variables;
};

/// The command line: torchrun's flags, with its defaults, and a few of our own. plan_launch makes the plan of it, and nothing
/// that happens afterwards reads it.
struct LaunchFlags {
  /// --nnodes, --rdzv-*, --node-rank, --master-*, --standalone.
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
  /// "0,2,3": the GPUs of this node that workers may see.
  std::string gpus;
  /// default, shared, tcmalloc or jemalloc; see worker_allocator.h.
  std::string allocator = "default";
  /// The flags that need no more than to be read.
  LaunchPlan plan;
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
HostFacts find_host_facts(const LaunchFlags& flags);

/// Checks the flags. Pure, but for a look for the library that --allocator names; errors name the flag and its value.
base::Result<LaunchPlan> plan_launch(const LaunchFlags& flags, const HostFacts& host);

}  // namespace cohort::elastic
