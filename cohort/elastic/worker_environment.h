/// The variables that a worker finds in its environment: torchrun's contract, as a pure function.
#pragma once

#include <map>
#include <string>

#include "cohort/elastic/world_layout.h"

namespace cohort::elastic {

/// What all workers of a job share.
struct Job {
  WorldLayout layout;
  std::string role = "default";
  std::string run_id = "none";
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  /// Names of the signals that the launcher forwards, as in "SIGTERM,SIGINT".
  std::string handled_signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
};

/// The launcher's own variables plus those of torchrun's contract, which win.
/// `error_file` is where the worker may leave the description of its failure ("" for none).
/// `threads_per_rank` > 0 sets OMP_NUM_THREADS where `inherited` does not.
std::map<std::string, std::string> worker_environment(const Job& job, int local_rank, const std::string& error_file,
                                                      int threads_per_rank,
                                                      std::map<std::string, std::string> inherited);

}  // namespace cohort::elastic
