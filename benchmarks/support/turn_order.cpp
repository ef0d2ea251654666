#include "benchmarks/support/turn_order.h"

#include <algorithm>
#include <numeric>

namespace cohort::bench {

TurnOrder::TurnOrder(size_t num_sides) : generator_(std::random_device{}()), order_(num_sides) {
  std::iota(order_.begin(), order_.end(), size_t{0});
}

const std::vector<size_t>& TurnOrder::next() {
  if (is_drawn_) {
    std::reverse(order_.begin(), order_.end());
  } else {
    std::shuffle(order_.begin(), order_.end(), generator_);
  }
  is_drawn_ = !is_drawn_;
  return order_;
}

std::vector<std::vector<double>> measure_in_turns(const std::vector<std::function<double()>>& sides, int num_rounds) {
  std::vector<std::vector<double>> figures(sides.size());
  TurnOrder order(sides.size());
  for (int round = 0; round < num_rounds; ++round) {
    for (const size_t side : order.next()) figures[side].push_back(sides[side]());
  }
  return figures;
}

}  // namespace cohort::bench
