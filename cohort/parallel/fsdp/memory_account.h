/// Counts the memory that fully_shard holds, parameter by parameter.
///
///     auto model = cohort::fully_shard(net);
///     torch::optim::AdamW optimizer(model->parameters());
///     ...                                                                  // some steps: before them there is little to count
///     const auto report = cohort::fsdp::memory_report(*model, optimizer);  // on every rank
///     if (cohort::get_rank() == 0) std::cout << report;
///
/// Counts the bytes that tensors hold, but not memory that allocators keep for later tensors, memory of running collectives,
/// activations, and the program itself. For that question PyTorch has torch/distributed/_tools/fsdp2_mem_tracker.py, which
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

/// The account of one rank. If ranks share memory, the sum over them is what the host holds.
struct MemoryAccount {
  struct Parameter {
    std::string name;
    at::ScalarType dtype = at::kFloat;  ///< of the shard
    std::vector<int64_t> sizes;
    std::vector<int64_t> shard_sizes;
    size_t num_shard_bytes = 0;
    /// Bytes that modules read, if they are not the shards themselves: this rank's shard of the copy in another dtype, which the
    /// ranks have once; or the full parameter, or a part of it, while it is gathered.
    size_t num_copy_bytes = 0;
    size_t num_gradient_bytes = 0;   ///< of the shard's gradient
    size_t num_optimizer_bytes = 0;  ///< of the shard's state
    /// Bytes of gradients that wait: full ones for a pass that reduces them (no_sync()), sums for a pass that reduces them over
    /// replicas.
    size_t num_waiting_bytes = 0;
  };
  std::vector<Parameter> parameters;
  /// If ranks share the parameters: gradients that other ranks may still be reading. 0 once the next forward pass has begun.
  size_t num_in_flight_bytes = 0;
  /// If ranks share the parameters: pages of copies of gradients, which stay. 0 if the shared allocator is switched on.
  size_t num_staging_bytes = 0;
  /// False if the optimizer is not LibTorch's SGD, Adam, AdamW, Adagrad or RMSprop, or of a class derived from them: its state is
  /// not counted.
  bool is_optimizer_known = true;
};

/// Counts the memory of one call of fully_shard.
COHORT_API MemoryAccount memory_account(const Sharding& sharding, const torch::optim::Optimizer& optimizer);
/// Counts the memory of all calls of fully_shard on `model` and on modules in it, by the names that the parameters have in
/// `model`.
COHORT_API MemoryAccount memory_account(const torch::nn::Module& model, const torch::optim::Optimizer& optimizer);

/// Describes this rank's account in words, with the sums over all ranks of `group`, which share the parameters. Collective over
/// `group`; if null, for this rank alone.
COHORT_API std::string memory_report(const MemoryAccount& account, const Group& group);
/// The same for memory_account(model, optimizer), over the group of the first parameter.
COHORT_API std::string memory_report(const torch::nn::Module& model, const torch::optim::Optimizer& optimizer);

}  // namespace cohort::fsdp
