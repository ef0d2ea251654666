/// SGD, Adam and AdamW whose step is one pass over memory instead of ten: torch.optim.{SGD,Adam,AdamW} of Python with fused=True,
/// whose numbers they give, bit by bit. LibTorch's own optimizers differ from those in rounding. SGD of 16-bit numbers on the CPU
/// is the exception: PyTorch 2.13's kernel is wrong there, so it goes through float32.
///
///     cohort::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
///
/// They are LibTorch's optimizers in all but the step: options, parameter groups, state, files, schedulers and what takes such
/// optimizers (ZeroRedundancyOptimizer, fuse_step, checkpoints) are the same, and a state of either loads into the other.
/// A complex number is updated as the two real ones that it is, as in Python. LibTorch's own Adam takes the square of the complex
/// number, so its numbers are others.
/// What the kernels do not take, LibTorch's step updates as before: parameters that are sparse, have gaps in their memory or
/// gradients of another dtype or layout, or lie on a device without such kernels.
/// Shards of fully_shard are parameters as any others. Thread-safety: as of LibTorch's.
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
  /// Returns what the closure returns. Throws c10::Error where a gradient or a loaded state has other sizes than its parameter,
  /// and what LibTorch's step throws.
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
