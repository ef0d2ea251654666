/// Replica: what DistributedDataParallel does around a module's forward, without knowing its signature.
///
/// Construction checks and synchronises the module; before_forward() synchronises buffers; after_forward() arms the reducer.
/// Follows _pre_forward and _post_forward of torch/nn/parallel/distributed.py.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/ddp/options.h"
#include "cohort/parallel/ddp/reducer.h"

namespace torch::nn {
class Module;
}

namespace cohort::parallel {
class GradientHook;
}

namespace cohort::ddp {

class COHORT_API Replica {
 public:
  /// Collective. Throws as DistributedDataParallel's constructor.
  Replica(torch::nn::Module& module, Options options);
  ~Replica();

  /// Collective when buffers are synchronised or buckets rebuilt.
  void before_forward();
  /// `outputs`: every tensor that forward returned.
  void after_forward(const std::vector<at::Tensor>& outputs);

  bool synchronises_gradients() const { return synchronises_gradients_; }
  void set_synchronises_gradients(bool value) { synchronises_gradients_ = value; }

  /// Device to which inputs are moved, and outputs after forward; absent: they stay where they are.
  std::optional<c10::Device> input_device() const;
  std::optional<c10::Device> output_device() const { return options_.output_device; }
  Reducer& reducer() { return *reducer_; }
  const Options& options() const { return options_; }

 private:
  void note_gradient();

  Options options_;
  torch::nn::Module& module_;
  std::unique_ptr<Reducer> reducer_;
  bool synchronises_gradients_ = true;
  bool synchronises_buffers_ = true;  // off for the forward after a local one
  // Forward passes under DDP whose backward has not come yet, and whether the last of them was local.
  std::atomic<int> num_forwards_ = 0;
  std::atomic<bool> is_local_ = false;
  std::unique_ptr<parallel::GradientHook> hook_;
};

}  // namespace cohort::ddp
