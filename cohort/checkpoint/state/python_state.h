/// Conversions between state dicts here and the nested dicts that Python saves, for .pt files.
///
///     c10::impl::GenericDict run(c10::StringType::get(), c10::AnyType::get());
///     run.insert("model", python_dict(*model));                               // {"model": model.state_dict(),
///     run.insert("optimizer", optimizer_state_dict(optimizer));               //  "optimizer": optimizer.state_dict()}
///     save(run, "run.pt", {.metadata_entries = true});                        // file/torch_file.h
///
///     load_state_dict(*model, tensors_in(load("run.pt").toGenericDict().at("model")));
///
/// With fully_shard, if rank 0 has read a file that Python wrote:
///
///     set_optimizer_state_dict(*model, optimizer, flat_optimizer_state(entry, *model, optimizer),
///                              {.full_state_dict = true, .broadcast_from_rank0 = true});
///
/// Tensors are not copied. Thread-safety: none.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/nn/module.h>

#include "cohort/checkpoint/optimizer/named_tensors.h"
#include "cohort/checkpoint/state/distributed_state.h"
#include "cohort/checkpoint/state/state_value.h"
#include "cohort/data/samplers/state_dict.h"
#include "cohort/export.h"

namespace cohort::checkpoint {

/// Returns a dict like model.state_dict() in Python; its attribute _metadata is the last entry, "_metadata".
COHORT_API c10::IValue python_dict(const torch::nn::Module& module);
/// Returns {"layer.weight": tensor, ...}.
COHORT_API c10::IValue python_dict(const StateDict& state);
/// Converts the state of a DataLoader: data_loader.state_dict().
COHORT_API c10::IValue python_dict(const data::StateDict& state);
/// Throws c10::ValueError if a value is a shard.
COHORT_API c10::IValue python_dict(const ShardedStateDict& state);

/// Leave out an entry "_metadata". Throw c10::ValueError for anything but a dict from texts to tensors.
COHORT_API StateDict tensors_in(const c10::IValue& dict);
COHORT_API data::StateDict loader_state_in(const c10::IValue& dict);
/// Returns tensors, and other values as they are, without an entry "_metadata".
COHORT_API ShardedStateDict values_in(const c10::IValue& dict);

/// The keys of parameters in a nested state: their positions 0, 1, 2, ..., as in optimizer.state_dict(), or their
/// names, as in torch.distributed.checkpoint's get_optimizer_state_dict.
enum class ParameterKeys { kNumbers, kNames };

/// Converts a result of get_optimizer_state_dict with full_state_dict to {"state": {...}, "param_groups": [...]}. The groups of
/// several optimizers follow each other. Throws c10::ValueError if a value is a shard.
COHORT_API c10::IValue nested_optimizer_state(const ShardedStateDict& state, const torch::nn::Module& model,
                                              const OptimizerList& optimizers,
                                              ParameterKeys keys = ParameterKeys::kNumbers);
/// Converts such a dict, with keys of either kind, for set_optimizer_state_dict with full_state_dict. Parameters with numbers are
/// identified by their positions in the optimizers' groups. Throws c10::ValueError for a dict without "state" and "param_groups",
/// and PyTorch's texts for other groups.
COHORT_API ShardedStateDict flat_optimizer_state(const c10::IValue& nested, const torch::nn::Module& model,
                                                 const OptimizerList& optimizers);

}  // namespace cohort::checkpoint
