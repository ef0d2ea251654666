/// ModulesToRun: the modules of one call of fully_shard that have still to run before their parameters may be freed. A round
/// begins with any of them, and ends when each has run once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace cohort::fsdp {

class ModulesToRun {
 public:
  explicit ModulesToRun(size_t num_modules = 1) : is_left_(num_modules) {}

  size_t num_modules() const { return is_left_.size(); }
  /// Notes that a module begins; opens a round unless one is open.
  void begin() {
    if (!is_open()) is_left_.assign(is_left_.size(), true);
  }
  /// Returns true if it was the last module of the round. For a single module that is each time.
  bool end(size_t module) {
    const bool was_left = is_left_.at(module);
    is_left_[module] = false;
    return is_left_.size() == 1 || (was_left && !is_open());
  }
  bool is_open() const { return std::find(is_left_.begin(), is_left_.end(), true) != is_left_.end(); }
  /// Ends the round: the remaining modules will not run.
  void close() { is_left_.assign(is_left_.size(), false); }

 private:
  std::vector<bool> is_left_;
};

}  // namespace cohort::fsdp
