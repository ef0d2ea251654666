/// Between state dicts here and the nested dicts that Python saves: what goes into, and comes out of, a .pt file.
///
///     c10::impl::GenericDict run(c10::StringType::get(), c10::AnyType::get());
///     run.insert("model", python_dict(*model));                               // {"model": model.state_dict(),
///     run.insert("optimizer", optimizer_state_dict(optimizer));               //  "optimizer": optimizer.state_dict()}
///     save(run, "run.pt", {.metadata_entries = true});                        // file/torch_file.h
///
///     load_state_dict(*model, tensors_in(load("run.pt").toGenericDict().at("model")));
///
/// With fully_shard, where rank 0 has read a file that Python wrote:
///
///     set_optimizer_state_dict(*model, optimizer, flat_optimizer_state(entry, *model, optimizer),
///                              {.full_state_dict = true, .broadcast_from_rank0 = true});
///
/// Tensors are not copied. Thread-safety: none.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/nn/module.h>

#include "cohort/checkpoint/state/distributed_state.h"
#include "cohort/checkpoint/state/named_tensors.h"
#include "cohort/checkpoint/state/state_value.h"
#include "cohort/data/loader/state_dict.h"
#include "cohort/export.h"

namespace cohort::checkpoint {

/// As model.state_dict() in Python; its attribute _metadata is the last entry, "_metadata".
COHORT_API c10::IValue python_dict(const torch::nn::Module& module);
/// {"layer.weight": tensor, ...}
COHORT_API c10::IValue python_dict(const StateDict& state);
/// The state of a DataLoader: data_loader.state_dict().
COHORT_API c10::IValue python_dict(const data::StateDict& state);
/// Throws c10::ValueError where a value is a part of a tensor.
COHORT_API c10::IValue python_dict(const ShardedStateDict& state);

/// Without an entry "_metadata". Throw c10::ValueError where it is no dict of texts to tensors.
COHORT_API StateDict tensors_in(const c10::IValue& dict);
COHORT_API data::StateDict loader_state_in(const c10::IValue& dict);
/// Tensors, and other values as they are, without an entry "_metadata".
COHORT_API ShardedStateDict values_in(const c10::IValue& dict);

/// How parameters are called in a nested state: by their places, 0, 1, 2, ..., as optimizer.state_dict() does, or by their
/// names, as torch.distributed.checkpoint's get_optimizer_state_dict does.
enum class ParameterKeys { kNumbers, kNames };

/// {"state": {...}, "param_groups": [...]} of what get_optimizer_state_dict gives with full_state_dict. Several optimizers have
/// their groups one after the other. Throws c10::ValueError where a value is a part of a tensor.
COHORT_API c10::IValue nested_optimizer_state(const ShardedStateDict& state, const torch::nn::Module& model,
                                              const OptimizerList& optimizers,
                                              ParameterKeys keys = ParameterKeys::kNumbers);
/// What set_optimizer_state_dict takes, with full_state_dict, of such a dict, whichever its keys. Parameters with numbers are
/// known by their places in the optimizers' groups. Throws c10::ValueError for a dict without "state" and "param_groups", and
/// PyTorch's texts for other groups.
COHORT_API ShardedStateDict flat_optimizer_state(const c10::IValue& nested, const torch::nn::Module& model,
                                                 const OptimizerList& optimizers);

}  // namespace cohort::checkpoint
