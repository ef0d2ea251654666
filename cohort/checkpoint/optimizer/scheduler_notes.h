/// SchedulerNotes: values that learning-rate schedulers store in an optimizer's parameter groups beside its options, under
/// Python's names ("initial_lr", "max_lr", ...). All schedulers of one optimizer share them, and the optimizer's state dict has
/// them in "param_groups", as in Python. They live as long as one of the schedulers.
///
/// Thread-safety: of() and find() are thread-safe, the notes are not.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace cohort::checkpoint::detail {

class SchedulerNotes {
 public:
  using Notes = std::vector<std::pair<std::string, double>>;

  /// Returns the notes of this optimizer, which must outlive them.
  static std::shared_ptr<SchedulerNotes> of(const torch::optim::Optimizer& optimizer);
  /// Returns null if no scheduler has notes.
  static std::shared_ptr<SchedulerNotes> find(const torch::optim::Optimizer& optimizer);

  std::optional<double> get(size_t group, const std::string& key) const;
  void set(size_t group, const std::string& key, double value);
  /// Returns a group's notes in the order in which they were first set.
  const Notes& group(size_t group) const;
  /// Loads the notes from the entries of a parameter group of a state dict.
  void load(size_t group, const c10::IValue& entries);

 private:
  std::vector<Notes> groups_;
};

/// Whether `key` of a parameter group is such a note.
bool is_scheduler_note(const std::string& key);

}  // namespace cohort::checkpoint::detail
