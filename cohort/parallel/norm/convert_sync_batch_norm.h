/// Turns the batch norms of a model into synchronized ones.
///
///     auto model = cohort::convert_sync_batchnorm(cohort::models::resnet50());
///     cohort::DistributedDataParallel ddp(model);
///
/// Works for any unmodified model: members (torch::nn::BatchNorm2d bn1), Sequential, ModuleList, AnyModule. C++ cannot replace a
/// member by another type, so the layers stay the same objects, with their parameters and names, and torch::batch_norm recognizes
/// them by their tensors: an optimizer or a wrapper made before still works.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <type_traits>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort {

/// Makes every torch::nn::BatchNorm1d, 2d and 3d in `module`, itself included, do in training what a SyncBatchNorm over
/// `process_group` does (if null, the group that is the default when forward runs); a SyncBatchNorm there changes its group. The
/// layer keeps its checks of the input, among them that a rank has more than one value per channel. Clones, and layers whose
/// tensors reset() has replaced, are plain again: convert them too.
/// Throws c10::ValueError, with the layer's name, if no std::shared_ptr owns a layer, and c10::NotImplementedError if another
/// library also replaces batch_norm (docs/design/libtorch_overrides.md); then nothing is changed.
COHORT_API void convert_sync_batchnorm(torch::nn::Module& module, const Group& process_group = {});

/// The same for a holder or a std::shared_ptr, which it returns.
template <class Net>
std::shared_ptr<Net> convert_sync_batchnorm(const std::shared_ptr<Net>& module, const Group& process_group = {}) {
  convert_sync_batchnorm(static_cast<torch::nn::Module&>(*module), process_group);
  return module;
}
template <class Holder>
requires requires { typename Holder::ContainedType; }
Holder convert_sync_batchnorm(const Holder& module, const Group& process_group = {}) {
  convert_sync_batchnorm(module.ptr(), process_group);
  return module;
}

}  // namespace cohort

namespace cohort::norm {

/// Whether `module` has a SyncBatchNorm in it, or a layer that has become one.
COHORT_API bool has_sync_batch_norm(const torch::nn::Module& module);

}  // namespace cohort::norm

// Old names, until the next release.
namespace cohort {
using norm::has_sync_batch_norm;
}  // namespace cohort
