/// The variables that a worker finds in its environment: torchrun's contract, as a pure function.
#pragma once

#include <map>
#include <string>

#include "cohort/elastic/world_layout.h"

namespace cohort::elastic {

/// What all workers of one round on this node share.
struct WorkerContext {
  WorldLayout layout;
  std::string role = "default";
  std::string run_id = "none";
  /// COHORT_JOB (rendezvous::Round).
  std::string job = {};
  std::string store_address = "127.0.0.1";
  int store_port = 0;
  /// False: worker 0 hosts the store itself.
  bool agent_hosts_store = true;
  int restart_count = 0;
  int max_restarts = 0;
  /// Names of the signals that the launcher forwards, as in "SIGTERM,SIGINT".
  std::string handled_signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  /// --virtual-local-rank: every worker is local rank 0 and sees one GPU.
  bool virtual_local_rank = false;
  /// Where watchdog timers are asked for; "": nowhere.
  std::string timer_file = {};
  /// COHORT_AGENT (orphans.h).
  std::string agent_mark = {};
  /// COHORT_SNAPSHOTS (vault/place.h).
  std::string vault = {};
};

WorkerContext context_of(const rendezvous::Round& round);

/// What is this worker's own.
struct WorkerShare {
  int local_rank = 0;
  /// Where it may leave the description of its failure; "" for none.
  std::string error_file;
  /// > 0 sets OMP_NUM_THREADS where the launcher's environment does not.
  int num_threads = 0;
  /// CUDA_VISIBLE_DEVICES, if that is ours to say.
  std::string visible_gpus;
};

/// The launcher's own variables plus those of torchrun's contract, which win.
std::map<std::string, std::string> worker_environment(const WorkerContext& context, const WorkerShare& share,
                                                      std::map<std::string, std::string> inherited);

}  // namespace cohort::elastic
