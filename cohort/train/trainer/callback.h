/// Callback: what happens beside training. Derive from it and give it to TrainerOptions::callbacks; all ranks call it, in the
/// order of the list.
///
///     struct Histogram : cohort::train::Callback {
///       void on_train_batch_end(cohort::train::Trainer& trainer, const cohort::train::StepReport& report) override { ... }
///     };
///
/// What it throws ends training. Thread-safety: the thread that calls the Trainer.
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

/// Of a batch that has been trained on, on this rank.
struct StepReport {
  at::Tensor loss;          ///< of this batch, not divided by gradient_accumulation_steps; without autograd
  int64_t batch = 0;        ///< of the epoch, from 0
  int64_t num_samples = 0;  ///< on this rank
  bool is_step = false;     ///< the optimizer has made a step with it
};

/// What a callback keeps in checkpoints. Keys must always be the same.
using CallbackState = std::map<std::string, double>;

class COHORT_API Callback {
 public:
  virtual ~Callback();

  /// Under which checkpoints keep its state; empty: it keeps none. Names of one Trainer differ.
  virtual std::string name() const { return {}; }
  virtual CallbackState state() const { return {}; }
  virtual void load_state(const CallbackState&) {}

  virtual void on_fit_start(Trainer&) {}
  virtual void on_fit_end(Trainer&) {}
  virtual void on_train_epoch_start(Trainer&) {}
  /// After validation, if this epoch has one.
  virtual void on_train_epoch_end(Trainer&) {}
  virtual void on_train_batch_start(Trainer&, int64_t /*batch*/) {}
  /// Gradients are those that the optimizer will get, clipped and without a scale.
  virtual void on_before_optimizer_step(Trainer&) {}
  virtual void on_train_batch_end(Trainer&, const StepReport&) {}
  virtual void on_validation_start(Trainer&) {}
  virtual void on_validation_end(Trainer&, const Metrics&) {}
  virtual void on_test_end(Trainer&, const Metrics&) {}
  virtual void on_save_checkpoint(Trainer&, int64_t /*step*/) {}
  /// Training has thrown; the exception is thrown on.
  virtual void on_exception(Trainer&, const std::exception&) {}
};

struct EarlyStoppingOptions {
  std::string monitor = "validation/loss";
  bool highest_is_best = false;
  /// A change below this is no improvement.
  double min_delta = 0.0;
  /// So many evaluations in a row without improvement end training.
  int64_t patience = 3;
  /// At once: when the number is as good as this, as bad as that, or not finite.
  std::optional<double> stopping_threshold = {};
  std::optional<double> divergence_threshold = {};
  bool check_finite = true;
};

/// Ends training when a number of the evaluation improves no more. Lightning's rules.
class COHORT_API EarlyStopping : public Callback {
 public:
  /// Throws c10::ValueError for a negative patience or min_delta.
  explicit EarlyStopping(EarlyStoppingOptions options = {});
  std::string name() const override { return "early_stopping." + options_.monitor; }
  CallbackState state() const override;
  void load_state(const CallbackState& state) override;
  void on_fit_start(Trainer&) override { is_fitting_ = true; }
  void on_fit_end(Trainer&) override { is_fitting_ = false; }
  void on_exception(Trainer&, const std::exception&) override { is_fitting_ = false; }
  /// Evaluations outside of fit() do not count. Throws c10::ValueError where the evaluation has no such number.
  void on_validation_end(Trainer& trainer, const Metrics& metrics) override;
  /// Empty: it has not stopped anything.
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
