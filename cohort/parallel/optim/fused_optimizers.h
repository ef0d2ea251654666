/// SGD, Adam and AdamW whose step is one pass over memory instead of ten: Python's torch.optim.{SGD,Adam,AdamW} with fused=True,
/// with the same numbers bit for bit. LibTorch's own optimizers differ from those in rounding. The exception is SGD of 16-bit
/// numbers on the CPU: PyTorch 2.13's kernel is wrong there, so this one goes through float32.
///
///     cohort::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
///
/// They are LibTorch's optimizers in everything but the step: options, parameter groups, state, files, schedulers and functions
/// that take such optimizers (ZeroRedundancyOptimizer, fuse_step, checkpoints) are the same, and the state of either loads into
/// the other.
/// A complex number is updated as two real numbers, as in Python. LibTorch's own Adam squares the complex number, so its results
/// differ.
/// LibTorch's step updates parameters that the kernels do not support: parameters that are sparse, have gaps in their memory or
/// gradients of another dtype or layout, or lie on a device without such kernels.
/// Shards of fully_shard are treated as any other parameters. Thread-safety: as of LibTorch's.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "cohort/export.h"

namespace cohort::optim {

class COHORT_API AdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;
  /// Returns the closure's result. Throws c10::Error if a gradient or a loaded state has other sizes than its parameter, and what
  /// LibTorch's step throws.
  at::Tensor step(LossClosure closure = nullptr) override;
};

class COHORT_API Adam : public torch::optim::Adam {
 public:
  using torch::optim::Adam::Adam;
  /// As AdamW::step.
  at::Tensor step(LossClosure closure = nullptr) override;
};

class COHORT_API SGD : public torch::optim::SGD {
 public:
  using torch::optim::SGD::SGD;
  /// As AdamW::step.
  at::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace cohort::optim
