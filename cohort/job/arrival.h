/// A rank that has arrived at the start of a job, and conflicts between the ranks that arrived. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/job/failure.h"
#include "cohort/job/gloo_key.h"
#include "cohort/job/peer.h"

namespace cohort::job {

struct Arrival {
  int rank = 0;
  std::optional<Peer> peer;       ///< written by a C++ rank about itself
  std::optional<GlooEntry> gloo;  ///< written by a Python rank's Gloo
};

/// Returns "rank 1 (pid 4711 on node-a)" or "rank 1 (a Python process on node-a)".
std::string describe(const Arrival& arrival);
/// Returns "rank 0 (...), rank 1 (...) and 14 more", or "none".
std::string describe(const std::vector<Arrival>& arrivals);

/// Returns the failure for two processes with one rank. `first` and `second` are texts of describe_process.
Failure duplicate_rank(int rank, const std::string& first, const std::string& second);

/// Returns a conflict that waiting cannot solve, the same on every rank that sees the same arrivals; nullopt without one:
/// world sizes that differ, two ranks with one accelerator, a loopback address between hosts, mixed address families.
std::optional<Failure> find_conflict(const std::vector<Arrival>& arrivals);

}  // namespace cohort::job
