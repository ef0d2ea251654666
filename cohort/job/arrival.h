/// A rank that has come to the start of a job, and what can be wrong between those that came. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/job/gloo_key.h"
#include "cohort/job/peer.h"

namespace cohort::job {

struct Arrival {
  int rank = 0;
  std::optional<Peer> peer;       ///< what a C++ rank writes about itself
  std::optional<GlooEntry> gloo;  ///< what a Python rank's Gloo writes
};

/// "rank 1 (pid 4711 on node-a)", "rank 1 (a Python process on node-a)"
std::string describe(const Arrival& arrival);
/// "rank 0 (...), rank 1 (...) and 14 more", or "none".
std::string describe(const std::vector<Arrival>& arrivals);

/// Of two processes with one rank, described as by describe_process.
std::string duplicate_rank_text(int rank, const std::string& first, const std::string& second);

/// The text of an error that no waiting can mend, the same on every rank that sees the same arrivals; nothing if all fits:
/// world sizes that differ, two ranks with one accelerator, a loopback address between hosts, mixed address families.
std::optional<std::string> find_conflict(const std::vector<Arrival>& arrivals);

}  // namespace cohort::job
