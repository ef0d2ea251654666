/// TurnOrder: the order of turns, for code that measures several sides.
///
/// A side finds the state that the one before it has left: caches, pages, a warm or busy processor. So the order is drawn anew
/// for every two rounds, and the second of them runs backwards: in these two each side comes once before and once after every
/// other.
#pragma once

#include <cstddef>
#include <functional>
#include <random>
#include <vector>

namespace cohort::bench {

class TurnOrder {
 public:
  explicit TurnOrder(size_t num_sides);
  /// Returns the sides, 0 to num_sides - 1, in the order of the next round.
  const std::vector<size_t>& next();

 private:
  std::mt19937 generator_;
  std::vector<size_t> order_;
  bool is_drawn_ = false;
};

/// Makes one measurement of every side in each round, in an order of TurnOrder. Returns: by side, a figure for each round.
std::vector<std::vector<double>> measure_in_turns(const std::vector<std::function<double()>>& sides, int num_rounds);

}  // namespace cohort::bench
