/// StageList: the stages that one rank has of a pipeline, as one module, for what takes a model: state dicts, checkpoints, a
/// Trainer's task. Its state dict has the names that the stages have by themselves, which are the whole model's
/// (models::split_gpt, split_sequential).
///
///     cohort::StageList stages({first.ptr(), third.ptr()});
///     cohort::checkpoint::get_state_dict(*stages, optimizer);
///
/// Thread-safety: as torch::nn::Module.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <vector>

#include "cohort/export.h"

namespace cohort {

class COHORT_API StageListImpl : public torch::nn::Module {
 public:
  /// Modules, also wrapped by fully_shard. Throws c10::ValueError for none, and for a null one.
  explicit StageListImpl(const std::vector<std::shared_ptr<torch::nn::Module>>& stages);
};
TORCH_MODULE(StageList);

}  // namespace cohort
