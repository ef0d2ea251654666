/// Makes the batch norms of a model synchronised ones.
///
///     auto model = cohort::convert_sync_batchnorm(cohort::models::resnet50());
///     cohort::DistributedDataParallel ddp(model);
///
/// Any model, unmodified: members (torch::nn::BatchNorm2d bn1), Sequential, ModuleList, AnyModule. C++ cannot put another type in
/// the place of a member, so the layers stay what and where they are, with their parameters and names, and torch::batch_norm
/// recognises them by their tensors: an optimizer or a wrapper made before goes on.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <type_traits>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort {

/// From now on every torch::nn::BatchNorm1d, 2d and 3d in `module`, itself included, does in training what a SyncBatchNorm over
/// `process_group` does (null: the default group, whichever there is when forward runs); a SyncBatchNorm there changes its group.
/// What remains of the layer: its checks of the input, among them that a rank has more than one value per channel.
/// Clones, and layers whose tensors are made anew by reset(), are plain again: convert them, too.
/// Throws c10::ValueError, naming the layer, for one that no std::shared_ptr owns, and c10::NotImplementedError where another
/// library replaces batch_norm, too (docs/design/libtorch_overrides.md); nothing is changed then.
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

/// True if `module` has a SyncBatchNorm in it, or a layer that has become one.
COHORT_API bool has_sync_batch_norm(const torch::nn::Module& module);

}  // namespace cohort
