/// StageList: one rank's stages of a pipeline as one module, for functions that take a model: state dicts, checkpoints, a
/// Trainer's task. Its state dict has the names that the stages have by themselves, which are those of the full model
/// (models::split_gpt, split_sequential).
///
///     cohort::pipeline::StageList stages(std::vector<std::shared_ptr<torch::nn::Module>>{first.ptr(), third.ptr()});
///     cohort::checkpoint::get_state_dict(*stages, optimizer);
///
/// Thread-safety: as torch::nn::Module.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <vector>

#include "cohort/export.h"

namespace cohort::pipeline {

class COHORT_API StageListImpl : public torch::nn::Module {
 public:
  /// Takes modules, possibly wrapped by fully_shard. Throws c10::ValueError for an empty list, and for a null module.
  explicit StageListImpl(const std::vector<std::shared_ptr<torch::nn::Module>>& stages);
};
TORCH_MODULE(StageList);

}  // namespace cohort::pipeline

// Old names, until the next release.
namespace cohort {
using StageListImpl [[deprecated("use cohort::pipeline::StageListImpl")]] = pipeline::StageListImpl;
using StageList [[deprecated("use cohort::pipeline::StageList")]] = pipeline::StageList;
}  // namespace cohort
