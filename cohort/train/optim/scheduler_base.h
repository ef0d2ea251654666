/// LRScheduler: what the schedulers of lr_scheduler.h share. They are torch.optim.lr_scheduler's: the same rates, bit by bit, and
/// the same state dicts, so that a run goes on in the other language.
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
/// Any optimizer: LibTorch's, cohort::optim's, ZeroRedundancyOptimizer, those of fully_shard's parameters. A scheduler sets the
/// rates of the parameter groups when it is constructed, and in each step(). To go on: construct it with the same settings as in
/// the run that was saved, then load the optimizer's state and the scheduler's.
///
/// The optimizer must outlive its schedulers. What they keep with its groups ("initial_lr") ends with the last of them.
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

/// A number for each parameter group, or one for all: 0.1, or {0.1, 0.02}.
class PerGroup {
 public:
  /*implicit*/ PerGroup(double of_all) : values_{of_all}, is_one_(true) {}
  /*implicit*/ PerGroup(std::initializer_list<double> of_each) : values_(of_each) {}
  /*implicit*/ PerGroup(std::vector<double> of_each) : values_(std::move(of_each)) {}

  /// Throws c10::ValueError (PyTorch's text) for another number of values.
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

  /// The next rates. Call it after the optimizer's step(). Throws c10::ValueError where the optimizer was given more groups
  /// since, and where the schedule has no rate: Python then raises, too.
  virtual void step();
  /// Of each parameter group, as this scheduler set them last.
  const std::vector<double>& get_last_lr() const { return last_lr_; }

  /// A dict with Python's keys. Functions of the program are not in it.
  c10::IValue state_dict() const;
  /// Takes what such a dict has, settings too, as Python does; entries that are missing stay as they are. The optimizer's rates
  /// are its own state. Throws c10::ValueError, which names the entry, for what is no state of such a scheduler; it is then
  /// unchanged.
  void load_state_dict(const c10::IValue& state);

  /// Steps done; 0: constructed.
  virtual int64_t last_epoch() const { return last_epoch_; }
  /// "StepLR"
  const char* name() const { return name_; }
  torch::optim::Optimizer& optimizer() const { return optimizer_; }

 protected:
  using Rates = std::vector<double>;
  using Fields = std::vector<SchedulerField>;

  LRScheduler(const char* name, torch::optim::Optimizer& optimizer);

  /// To be called at the end of the constructor: notes "initial_lr" and sets the first rates.
  void start();
  /// The rates at last_epoch_, from base_lrs_ or from the present ones.
  virtual Rates rates();
  /// The rates at epoch 0 for a scheduler whose turn comes later: PyTorch's closed form.
  virtual Rates rates_of_restart() { return rates(); }
  /// What the state dict has beside the fields of every scheduler: before them, and after them.
  virtual Fields settings();
  virtual Fields functions();
  virtual Fields fields();

  /// The entry "_schedulers" of a scheduler of schedulers.
  static SchedulerField schedulers_field(const std::vector<std::shared_ptr<LRScheduler>>& schedulers);

  Rates current_rates() const;
  void set_rates(const Rates& rates);
  size_t num_groups() const;
  /// The present rates times a number; the base rates times a number.
  Rates scaled(double factor) const;
  Rates scaled_base(double factor) const;
  /// Throws c10::ValueError for a denominator of 0: then a part of the schedule has no steps.
  double divide(double numerator, double denominator) const;
  checkpoint::detail::SchedulerNotes& notes() const { return *notes_; }
  /// Throws c10::ValueError where no scheduler has noted it.
  double note(size_t group, const char* key) const;

  int64_t last_epoch_ = -1;
  int64_t step_count_ = 0;
  /// While the first rates are set.
  bool is_initial_ = false;
  Rates base_lrs_;
  Rates last_lr_;

 private:
  friend class SequentialLR;
  friend class ChainedScheduler;

  /// For schedulers of schedulers: begins again; takes the first step back; sets the rates of epoch 0.
  virtual void begin();
  virtual void undo() { --last_epoch_; }
  virtual void restart();
  virtual bool has_restart() const { return true; }
  /// What load_state_dict does, once nothing can fail any more.
  std::function<void()> read_state(const c10::IValue& state);

  const char* name_;
  torch::optim::Optimizer& optimizer_;
  std::shared_ptr<checkpoint::detail::SchedulerNotes> notes_;
};

}  // namespace cohort::optim
