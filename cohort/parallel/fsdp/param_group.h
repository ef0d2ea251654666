/// ParamGroup: the parameters of one call of fully_shard. Whoever implements it decides where the whole parameters are while
/// modules compute with them, and how gradients become those of the shards (PyTorch's FSDPParamGroup).
///
/// Thread-safety: one thread at a time; gradients may come in the thread that runs backward.
#pragma once

#include <functional>
#include <vector>

#include "cohort/parallel/fsdp/sharded_parameter.h"

namespace cohort::fsdp {

class ParamGroup {
 public:
  virtual ~ParamGroup() = default;

  const std::vector<ShardedParameter>& parameters() const { return parameters_; }
  /// Called for every gradient that a backward pass brings, before anything else is done with it.
  void set_on_gradient(std::function<void()> on_gradient) { on_gradient_ = std::move(on_gradient); }

  bool requires_gradient_sync() const { return requires_gradient_sync_; }
  /// False: gradients stay whole on their rank, and are added up there until a backward pass with true reduces their sum.
  void set_requires_gradient_sync(bool value) { requires_gradient_sync_ = value; }
  /// By what sums of gradients are divided; the number of ranks unless set.
  void set_gradient_divide_factor(double factor) { divide_factor_ = factor; }

  /// Throws c10::Error where a parameter is no longer what fully_shard has made of it.
  virtual void before_forward() = 0;
  /// In the middle of backward: goes on with what needs no waiting.
  virtual void poll() = 0;
  /// This rank's backward pass is over: what has not come will not come.
  virtual void end_backward() = 0;
  /// Every rank's is. Afterwards the shards have their gradients.
  virtual void reduce_rest() = 0;
  /// All ranks have reduced the last backward pass, and have done what they do to their shards.
  virtual void forget_gradients() = 0;
  /// After a failure, or an exception in the middle of a pass: gradients that are on their way are let go.
  virtual void reset() = 0;
  /// Calls `write` for every whole parameter. Only on one rank, while the others wait.
  virtual void write(const Writer& write) = 0;

 protected:
  std::vector<ShardedParameter> parameters_;
  std::function<void()> on_gradient_;
  bool requires_gradient_sync_ = true;
  double divide_factor_ = 1;
};

}  // namespace cohort::fsdp
