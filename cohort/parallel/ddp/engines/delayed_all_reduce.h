/// DelayedAllReduce: averages the gradients of some parameters together, at one moment of the backward pass that the user
/// chooses, instead of bucket by bucket (delay_all_reduce_named_params of torch/nn/parallel/distributed.py).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

#include "cohort/comm/group/process_group.h"

namespace cohort::ddp {

class DelayedAllReduce {
 public:
  /// Averages the gradients when the gradient of `hooked` is computed: by then all others must have been computed. Broadcasts
  /// rank 0's parameters. Collective. Throws c10::ValueError for parameters of several dtypes or devices.
  DelayedAllReduce(Group group, std::vector<at::Tensor> parameters, const at::Tensor& hooked);
  ~DelayedAllReduce();
  DelayedAllReduce(const DelayedAllReduce&) = delete;
  DelayedAllReduce& operator=(const DelayedAllReduce&) = delete;

  /// Between forward and backward: moves gradients into the common memory; undefined ones are zeros there.
  void prepare();
  void use_group(const Group& group) { group_ = group; }

 private:
  void start();

  Group group_;
  std::vector<at::Tensor> parameters_;
  at::Tensor memory_;
  std::vector<at::Tensor> aliases_;  // of the gradients, in memory_
  at::Tensor hooked_;
  unsigned hook_ = 0;
  c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace cohort::ddp
