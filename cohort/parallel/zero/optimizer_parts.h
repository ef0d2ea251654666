/// An optimizer of any kind taken apart: what torch::optim::Optimizer's interface allows without knowing the kind.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <string>
#include <vector>

#include "cohort/comm/group/process_group.h"

namespace cohort::zero {

using ParamGroups = std::vector<torch::optim::OptimizerParamGroup>;

/// The same options over other parameters.
torch::optim::OptimizerParamGroup with_params(const torch::optim::OptimizerParamGroup& group,
                                              std::vector<at::Tensor> params);

/// While it lives, `local` works with the option objects of `shown`, which has as many groups, and not with copies: what the
/// program has set there counts, and what the local optimizer sets is seen there. References to them stay good.
class LentOptions {
 public:
  LentOptions(ParamGroups& shown, ParamGroups& local) : shown_(shown), local_(local) { exchange(); }
  ~LentOptions() { exchange(); }
  LentOptions(const LentOptions&) = delete;
  LentOptions& operator=(const LentOptions&) = delete;

 private:
  void exchange();

  ParamGroups& shown_;
  ParamGroups& local_;
};

/// State and options, as torch::save writes them. Parameters are known by their places in the groups.
std::string bytes_of(const torch::optim::Optimizer& optimizer);
/// Into an optimizer of the same kind, with as many parameters in each group. Tensors go to `device`.
void load_bytes(torch::optim::Optimizer& optimizer, const std::string& bytes, c10::Device device);

/// Moves the state of every parameter of `from` to `to`.
void move_state(torch::optim::Optimizer& from, torch::optim::Optimizer& to);

/// A flat tensor whose views the parameters, of one dtype and device, become from now on, with the values that they have.
/// Collective: see ddp::make_bucket_memory.
at::Tensor flatten_params(const std::vector<at::Tensor>& params, const Group& group);

/// "torch.FloatTensor", as Python's torch.typename has it.
std::string typename_of(const at::Tensor& tensor);

}  // namespace cohort::zero
