/// TurnOrder: who goes first. Whoever measures several sides takes their turns from here.
///
/// A side finds what the one before it has left: caches, pages, a processor that is warm or busy. So the order is drawn anew for
/// every two rounds, and the second of them runs backwards: in these two each side goes once before and once after every other.
#pragma once

#include <cstddef>
#include <functional>
#include <random>
#include <vector>

namespace cohort::bench {

class TurnOrder {
 public:
  explicit TurnOrder(size_t num_sides);
  /// The sides, 0 to num_sides - 1, in the order of the next round.
  const std::vector<size_t>& next();

 private:
  std::mt19937 generator_;
  std::vector<size_t> order_;
  bool is_drawn_ = false;
};

/// In each round every side makes one measurement, in an order of TurnOrder. Returns: by side, a figure for each round.
std::vector<std::vector<double>> measure_in_turns(const std::vector<std::function<double()>>& sides, int num_rounds);

}  // namespace cohort::bench
