/// The launchers that are measured: ours and torchrun, with the same flags, turn by turn.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "benchmarks/support/question.h"

namespace cohort::bench {

/// `cohort run` with these words behind it.
std::vector<std::string> our_launcher(const Settings& settings, const std::vector<std::string>& words);
/// torchrun; empty where it is not installed.
std::vector<std::string> torchrun(const std::vector<std::string>& words);
bool has_torchrun();

/// One node whose rendezvous is real, not --standalone's: its own store at a free port, logs of both streams in `folder`.
std::vector<std::string> one_node_flags(int num_workers, const std::string& folder);

struct LauncherRival {
  std::string name;
  std::function<double()> measure;
};

/// What is compared, in one case. Figures are better when they are lower.
struct LauncherCase {
  std::string name;
  std::string unit;
  std::function<double()> ours;
  /// Not measured where torchrun is not installed: all of them need it.
  std::vector<LauncherRival> rivals;
};

/// A row for each rival. With `warms_up` every side is measured once before anything counts.
std::vector<Row> compare_launchers(const LauncherCase& given, int num_rounds, bool warms_up);

}  // namespace cohort::bench
