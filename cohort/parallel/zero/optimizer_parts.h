/// Takes apart an optimizer of any kind, with nothing but the interface of torch::optim::Optimizer.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <string>
#include <vector>

#include "cohort/comm/group/process_group.h"

namespace cohort::zero {

using ParamGroups = std::vector<torch::optim::OptimizerParamGroup>;

/// Returns a group of the same options over other parameters.
torch::optim::OptimizerParamGroup with_params(const torch::optim::OptimizerParamGroup& group,
                                              std::vector<at::Tensor> params);

/// While it lives, `local` works with the option objects of `shown`, which has as many groups, not with copies: the program's
/// settings there count, and settings of the local optimizer are seen there. References to them stay valid.
class SwappedOptions {
 public:
  SwappedOptions(ParamGroups& shown, ParamGroups& local) : shown_(shown), local_(local) { exchange(); }
  ~SwappedOptions() { exchange(); }
  SwappedOptions(const SwappedOptions&) = delete;
  SwappedOptions& operator=(const SwappedOptions&) = delete;

 private:
  void exchange();

  ParamGroups& shown_;
  ParamGroups& local_;
};

/// Returns state and options, as torch::save writes them. Parameters are identified by their places in the groups.
std::string bytes_of(const torch::optim::Optimizer& optimizer);
/// Loads into an optimizer of the same kind, with as many parameters in each group. Tensors go to `device`.
void load_bytes(torch::optim::Optimizer& optimizer, const std::string& bytes, c10::Device device);

/// Moves the state of every parameter of `from` to `to`.
void move_state(torch::optim::Optimizer& from, torch::optim::Optimizer& to);

/// Returns a flat tensor, of which the parameters, of one dtype and device, become views, with their present values. Collective:
/// see ddp::make_bucket_memory.
at::Tensor flatten_params(const std::vector<at::Tensor>& params, const Group& group);

/// Returns a name such as "torch.FloatTensor", as Python's torch.typename.
std::string typename_of(const at::Tensor& tensor);

}  // namespace cohort::zero
