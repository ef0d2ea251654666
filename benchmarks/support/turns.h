/// Variants of one training, which live at once, in teams, and take blocks of steps in turn.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/support/team.h"

namespace cohort::bench {

struct Variant {
  std::string name;
  Team* team;
  /// Its name in the team's commands.
  std::string command;
};

struct BlockPlan {
  /// Steps that are not timed, then timed steps.
  int num_warm = 0;
  int num_steps = 1;
  int num_rounds = 1;
  /// Stops there, but not before a few rounds; at `end` after any round.
  std::chrono::steady_clock::time_point deadline;
  std::chrono::steady_clock::time_point end;
};

/// By a variant's name: milliseconds per step, one figure for each round.
using Times = std::map<std::string, std::vector<double>>;

/// In each round every variant takes a block ("run COMMAND WARM STEPS"), in an order of TurnOrder, while the others sleep. The
/// time of a block is that of its slower rank.
Times take_turns(const std::vector<Variant>& variants, const BlockPlan& plan);

/// Whether two answers have the same numbers, up to `tolerance`, relative to one plus the number. A text that is not a number
/// agrees with nothing.
bool agree(const std::string& a, const std::string& b, double tolerance = 1e-8);

/// Throws std::runtime_error for an unknown name, and lists the cases. An empty name means all of them.
void check_case(const std::string& name, const std::vector<std::string>& cases);

/// Returns the Python interpreter with the PyTorch of this build; empty without one.
std::string find_python();

}  // namespace cohort::bench
