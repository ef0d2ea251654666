/// LRScheduler: the base class of the schedulers of lr_scheduler.h. They are torch.optim.lr_scheduler's: the same rates, bit by
/// bit, and the same state dicts, so that a run can continue in the other language.
///
///     cohort::optim::CosineAnnealingLR scheduler(optimizer, /*T_max=*/100);
///     for (...) {
///       optimizer.step();
///       scheduler.step();
///     }
///     c10::impl::GenericDict run(c10::StringType::get(), c10::AnyType::get());
///     run.insert("optimizer", checkpoint::optimizer_state_dict(optimizer));   // with the rates
///     run.insert("scheduler", scheduler.state_dict());
///
/// Works with any optimizer: LibTorch's, cohort::optim's, ZeroRedundancyOptimizer, and optimizers of fully_shard's parameters. A
/// scheduler sets the rates of the parameter groups when it is constructed, and in each step(). To resume, construct it with the
/// settings of the saved run, then load the optimizer's state and the scheduler's.
///
/// The optimizer must outlive its schedulers. Their data in its groups ("initial_lr") is removed with the last scheduler.
/// Thread-safety: none.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "cohort/export.h"

namespace torch::optim {
class Optimizer;
}
namespace cohort::checkpoint::detail {
class SchedulerNotes;
}

namespace cohort::optim {

struct SchedulerField;

/// A number for each parameter group, or one for all groups: {0.1, 0.02}, or 0.1.
class PerGroup {
 public:
  /*implicit*/ PerGroup(double of_all) : values_{of_all}, is_one_(true) {}
  /*implicit*/ PerGroup(std::initializer_list<double> of_each) : values_(of_each) {}
  /*implicit*/ PerGroup(std::vector<double> of_each) : values_(std::move(of_each)) {}

  /// Throws c10::ValueError (PyTorch's text) if there are more or fewer values than groups.
  std::vector<double> of_groups(const char* name, size_t num_groups) const;
  bool is_one() const { return is_one_; }

 private:
  std::vector<double> values_;
  bool is_one_ = false;
};

class COHORT_API LRScheduler {
 public:
  virtual ~LRScheduler();
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  /// Sets the next rates. Call it after the optimizer's step(). Throws c10::ValueError if groups were added to the optimizer
  /// since, and if the schedule has no rate, in which case Python raises, too.
  virtual void step();
  /// The rates of each parameter group that this scheduler set last.
  const std::vector<double>& get_last_lr() const { return last_lr_; }

  /// Returns a dict with Python's keys. It does not have functions of the program.
  c10::IValue state_dict() const;
  /// Loads a dict of state_dict() or Python, including its settings, as Python does; missing entries stay as they are. The rates
  /// themselves are in the optimizer's state. Throws c10::ValueError naming the entry if `state` is not a state of such a
  /// scheduler; the scheduler is then unchanged.
  void load_state_dict(const c10::IValue& state);

  /// Steps done; 0 after construction.
  virtual int64_t last_epoch() const { return last_epoch_; }
  /// "StepLR"
  const char* name() const { return name_; }
  torch::optim::Optimizer& optimizer() const { return optimizer_; }

 protected:
  using Rates = std::vector<double>;
  using Fields = std::vector<SchedulerField>;

  LRScheduler(const char* name, torch::optim::Optimizer& optimizer);

  /// Call it at the end of the constructor: notes "initial_lr" and sets the first rates.
  void start();
  /// Returns the rates at last_epoch_, from base_lrs_ or from the current ones.
  virtual Rates rates();
  /// Returns the rates at epoch 0 for a scheduler that SequentialLR begins later: PyTorch's closed form.
  virtual Rates rates_of_restart() { return rates(); }
  /// Entries of the state dict, in this order; `fields` are the entries of every scheduler.
  virtual Fields settings();
  virtual Fields functions();
  virtual Fields fields();

  /// The entry "_schedulers" of a combined scheduler.
  static SchedulerField schedulers_field(const std::vector<std::shared_ptr<LRScheduler>>& schedulers);

  Rates current_rates() const;
  void set_rates(const Rates& rates);
  size_t num_groups() const;
  /// Return the current rates, or the base rates, times a number.
  Rates scaled(double factor) const;
  Rates scaled_base(double factor) const;
  /// Throws c10::ValueError for a denominator of 0, which means that a part of the schedule has no steps.
  double divide(double numerator, double denominator) const;
  checkpoint::detail::SchedulerNotes& notes() const { return *notes_; }
  /// Throws c10::ValueError if no scheduler has noted it.
  double note(size_t group, const char* key) const;

  int64_t last_epoch_ = -1;
  int64_t step_count_ = 0;
  /// True while the first rates are set.
  bool is_initial_ = false;
  Rates base_lrs_;
  Rates last_lr_;

 private:
  friend class SequentialLR;
  friend class ChainedScheduler;

  /// For combined schedulers: begin() starts again, undo() takes the first step back, restart() sets the rates of epoch 0.
  virtual void begin();
  virtual void undo() { --last_epoch_; }
  virtual void restart();
  virtual bool has_restart() const { return true; }
  /// Returns the part of load_state_dict that changes the scheduler and cannot fail.
  std::function<void()> read_state(const c10::IValue& state);

  const char* name_;
  torch::optim::Optimizer& optimizer_;
  std::shared_ptr<checkpoint::detail::SchedulerNotes> notes_;
};

}  // namespace cohort::optim
