/// Callback: hooks that run during training. Derive from it and add it to TrainerOptions::callbacks. All ranks call the callbacks
/// in the order of the list.
///
///     struct Histogram : cohort::train::Callback {
///       void on_train_batch_end(cohort::train::Trainer& trainer, const cohort::train::StepReport& report) override { ... }
///     };
///
/// An exception from a callback ends training. Thread-safety: the thread that calls the Trainer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <string>

#include "cohort/export.h"
#include "cohort/train/progress.h"

namespace cohort::train {

class Trainer;

/// The report of a training batch on this rank.
struct StepReport {
  at::Tensor loss;          ///< of this batch, not divided by gradient_accumulation_steps; detached
  int64_t batch = 0;        ///< index of the batch in the epoch
  int64_t num_samples = 0;  ///< on this rank
  bool is_step = false;     ///< whether the optimizer stepped after this batch
};

/// The state of a callback in checkpoints. Its keys must always be the same.
using CallbackState = std::map<std::string, double>;

class COHORT_API Callback {
 public:
  virtual ~Callback();

  /// The name under which checkpoints keep the state. If empty, they keep none. Callbacks of one Trainer have different names.
  virtual std::string name() const { return {}; }
  virtual CallbackState state_dict() const { return {}; }
  virtual void load_state_dict(const CallbackState&) {}

  virtual void on_fit_start(Trainer&) {}
  virtual void on_fit_end(Trainer&) {}
  virtual void on_train_epoch_start(Trainer&) {}
  /// Called after validation, if this epoch has one.
  virtual void on_train_epoch_end(Trainer&) {}
  virtual void on_train_batch_start(Trainer&, int64_t /*batch*/) {}
  /// Called when gradients are clipped and unscaled, as the optimizer will get them.
  virtual void on_before_optimizer_step(Trainer&) {}
  virtual void on_train_batch_end(Trainer&, const StepReport&) {}
  virtual void on_validation_start(Trainer&) {}
  virtual void on_validation_end(Trainer&, const Metrics&) {}
  virtual void on_test_end(Trainer&, const Metrics&) {}
  virtual void on_save_checkpoint(Trainer&, int64_t /*step*/) {}
  /// Called when training has thrown. The exception is then rethrown.
  virtual void on_exception(Trainer&, const std::exception&) {}
};

struct EarlyStoppingOptions {
  std::string monitor = "validation/loss";
  bool highest_is_best = false;
  /// A smaller change does not count as an improvement.
  double min_delta = 0.0;
  /// Training ends after this many evaluations in a row without improvement.
  int64_t patience = 3;
  /// Training ends at once if the monitored number is as good as the first threshold, as bad as the second, or not finite.
  std::optional<double> stopping_threshold = {};
  std::optional<double> divergence_threshold = {};
  bool check_finite = true;
};

/// Ends training when a number of the evaluation stops improving, by Lightning's rules.
class COHORT_API EarlyStopping : public Callback {
 public:
  /// Throws c10::ValueError for a negative patience or min_delta.
  explicit EarlyStopping(EarlyStoppingOptions options = {});
  std::string name() const override { return "early_stopping." + options_.monitor; }
  CallbackState state_dict() const override;
  void load_state_dict(const CallbackState& state) override;
  void on_fit_start(Trainer&) override { is_fitting_ = true; }
  void on_fit_end(Trainer&) override { is_fitting_ = false; }
  void on_exception(Trainer&, const std::exception&) override { is_fitting_ = false; }
  /// Ignores evaluations outside of fit(). Throws c10::ValueError if the evaluation has no number of that name.
  void on_validation_end(Trainer& trainer, const Metrics& metrics) override;
  /// Why training was stopped. Empty if this callback has not stopped it.
  const std::string& reason() const { return reason_; }

 private:
  bool is_better(double value, double than) const;
  void judge(double value);

  EarlyStoppingOptions options_;
  std::optional<double> best_;
  int64_t num_bad_ = 0;
  std::string reason_;
  bool is_fitting_ = false;
};

}  // namespace cohort::train
