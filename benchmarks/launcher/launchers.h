/// The launchers that are measured: ours and torchrun, with the same flags.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/support/question.h"

namespace cohort::bench {

/// `cohort run` with these words behind it.
std::vector<std::string> our_launcher(const Settings& settings, const std::vector<std::string>& words);
/// torchrun; empty where it is not installed.
std::vector<std::string> torchrun(const std::vector<std::string>& words);

/// One node whose rendezvous is real, not --standalone's: its own store at a free port, logs of both streams in `folder`.
std::vector<std::string> one_node_flags(int num_workers, const std::string& folder);

}  // namespace cohort::bench
