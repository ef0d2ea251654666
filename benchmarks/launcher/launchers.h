/// The launchers to measure in turn: ours and torchrun, with the same flags.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "benchmarks/support/question.h"

namespace cohort::bench {

/// Returns `cohort run` followed by these words.
std::vector<std::string> our_launcher(const Settings& settings, const std::vector<std::string>& words);
/// Returns the command of torchrun; empty if it is not installed.
std::vector<std::string> torchrun(const std::vector<std::string>& words);
bool has_torchrun();

/// Flags for one node with a real rendezvous, not --standalone's: its own store at a free port, and logs of both streams in
/// `folder`.
std::vector<std::string> one_node_flags(int num_workers, const std::string& folder);

struct LauncherRival {
  std::string name;
  std::function<double()> measure;
};

/// A comparison in one case. Lower figures are better.
struct LauncherCase {
  std::string name;
  std::string unit;
  std::function<double()> ours;
  /// Not measured if torchrun is not installed, as all rivals need it.
  std::vector<LauncherRival> rivals;
};

/// Returns a row for each rival. If `warms_up`, measures every side once before the counted rounds.
std::vector<Row> compare_launchers(const LauncherCase& given, int num_rounds, bool warms_up);

}  // namespace cohort::bench
