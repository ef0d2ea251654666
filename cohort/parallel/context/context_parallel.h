/// Context parallelism: in a scope, ranks shard the positions of a sequence, and attention in unchanged code sees all of them.
///
///     {
///       const cohort::ContextParallel scope(mesh["cp"], {.buffers = {tokens, targets, positions},
///                                                        .buffer_seq_dims = {1, 1, 0}});
///       auto loss = model->forward(tokens, positions, targets);   // calls at::scaled_dot_product_attention somewhere
///       loss.backward();
///     }                                                           // restores tokens, targets and positions
///
/// Names and meaning follow torch.distributed.tensor.experimental.context_parallel of PyTorch 2.13
/// (torch/distributed/tensor/experimental/_context_parallel/_attention.py).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/parallel/context/ring_attention.h"

namespace cohort {

/// The algorithm by which attention sees the positions of other ranks.
enum class ContextAttention {
  kRing,    ///< ring_attention.h: any number of heads, no mask except a causal one
  kUlysses  ///< ulysses_attention.h: any mask, numbers of heads that the number of ranks divides
};

struct ContextParallelOptions {
  /// Tensors that are sharded in place along their sequence dimension: batches, targets, positions or tables of them. Other
  /// tensors in the same memory do not change. Must not be parameters.
  std::vector<at::Tensor> buffers = {};
  std::vector<int64_t> buffer_seq_dims = {};
  /// Those of `buffers` that are not restored at the end.
  std::vector<at::Tensor> no_restore_buffers = {};
  /// Gives each rank a part from the head and one from the tail (SequenceLayout::kHeadTail): equal work for all ranks under a
  /// causal mask.
  bool load_balance = true;
  ContextAttention attention = ContextAttention::kRing;
  RotateMethod rotate = RotateMethod::kAllGather;
};

/// While it lives, every at::scaled_dot_product_attention of this process, on the CPU and the accelerator, is attention over all
/// ranks of the group; its query, key and value are [batch, heads, own positions, size]. It throws c10::ValueError for dropout,
/// and with kRing for a mask. Only one scope at a time. Backward may run after the scope, except with activation checkpointing,
/// which computes forward again. The scope begins and ends without communication; attention is collective.
class COHORT_API ContextParallel {
 public:
  /// `mesh`: of one axis. Throws c10::ValueError for lists that do not fit, lengths that cannot be divided evenly, and
  /// parameters, before anything is changed; c10::Error inside another such scope; c10::NotImplementedError if another library
  /// also replaces attention (docs/design/libtorch_overrides.md).
  explicit ContextParallel(const DeviceMesh& mesh, const ContextParallelOptions& options = {});
  explicit ContextParallel(const Group& group, const ContextParallelOptions& options = {});
  /// Restores buffers and attention.
  ~ContextParallel();
  ContextParallel(const ContextParallel&) = delete;
  ContextParallel& operator=(const ContextParallel&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns, on every rank, the full tensors of sharded buffers, in new memory and without autograd. Collective. Throws
/// c10::ValueError for lists of different lengths.
COHORT_API std::vector<at::Tensor> context_parallel_unshard(const DeviceMesh& mesh,
                                                            const std::vector<at::Tensor>& buffers,
                                                            const std::vector<int64_t>& seq_dims,
                                                            bool load_balance = true);
COHORT_API std::vector<at::Tensor> context_parallel_unshard(const Group& group, const std::vector<at::Tensor>& buffers,
                                                            const std::vector<int64_t>& seq_dims,
                                                            bool load_balance = true);

}  // namespace cohort
