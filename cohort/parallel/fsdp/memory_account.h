/// What fully_shard holds, parameter by parameter.
///
///     auto model = cohort::fully_shard(net);
///     torch::optim::AdamW optimizer(model->parameters());
///     ...                                                                  // some steps: before them there is little to count
///     const auto report = cohort::fsdp::memory_report(*model, optimizer);  // on every rank
///     if (cohort::get_rank() == 0) std::cout << report;
///
/// Counted is what tensors hold, in bytes, without what allocators keep for later ones, what collectives hold while they run,
/// activations, and the program itself. PyTorch has torch/distributed/_tools/fsdp2_mem_tracker.py for that question, which
/// watches a whole step.
///
/// Thread-safety: as fully_shard.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::fsdp {

class Sharding;

/// Of one rank. Where ranks share one memory, the sum over them is what the host holds.
struct MemoryAccount {
  struct Parameter {
    std::string name;
    at::ScalarType dtype = at::kFloat;  ///< of the shard
    std::vector<int64_t> sizes;
    std::vector<int64_t> shard_sizes;
    size_t num_shard_bytes = 0;
    /// Of what modules read, if that is other memory than the shards: this rank's part of the copy in another dtype, which the
    /// ranks have once; the whole parameter, or a part of it, where it is gathered, while it is there.
    size_t num_copy_bytes = 0;
    size_t num_gradient_bytes = 0;   ///< of the shard's gradient
    size_t num_optimizer_bytes = 0;  ///< of the shard's state
    /// Of gradients that wait: whole ones for a pass that reduces them (no_sync()), sums for one that reduces them over replicas.
    size_t num_waiting_bytes = 0;
  };
  std::vector<Parameter> parameters;
  /// With one memory: gradients that other ranks may still be reading. None are left when the next forward pass has begun.
  size_t num_in_flight_bytes = 0;
  /// With one memory: pages of copies of gradients, which stay. None where the shared allocator is switched on.
  size_t num_staging_bytes = 0;
  /// False: the optimizer is not one of LibTorch's SGD, Adam, AdamW, Adagrad and RMSprop, or of a class derived from them. Its
  /// state is not counted.
  bool is_optimizer_known = true;
};

/// Of one call of fully_shard.
COHORT_API MemoryAccount memory_account(const Sharding& sharding, const torch::optim::Optimizer& optimizer);
/// Of all calls of fully_shard on `model` and on modules in it, by the names that the parameters have in `model`.
COHORT_API MemoryAccount memory_account(const torch::nn::Module& model, const torch::optim::Optimizer& optimizer);

/// This rank's account in words, with the sums over all ranks of `group`, which share the parameters. Collective over it; null:
/// this rank alone.
COHORT_API std::string memory_report(const MemoryAccount& account, const Group& group);
/// The same of memory_account(model, optimizer), over the group of the first parameter.
COHORT_API std::string memory_report(const torch::nn::Module& model, const torch::optim::Optimizer& optimizer);

}  // namespace cohort::fsdp
