/// BucketReduction: the operations that reduce a step's buckets, their divisor, and which of them wait for the end of backward.
///
/// [Note: last bucket] When the last bucket is full, no computation is left to overlap its reduction with. On a backend that runs
/// synchronous operations in the calling thread ("shm"), the end of backward reduces it that way, which wakes no other thread.
/// With one core per rank no bucket can overlap with anything: the end of backward reduces them all.
///
/// Thread-safety: none; the engine's lock protects it. call_hook() runs without the lock.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstdint>
#include <vector>

#include "cohort/parallel/ddp/buckets/bucket.h"
#include "cohort/parallel/ddp/buckets/bucket_set.h"
#include "cohort/parallel/ddp/engines/engine.h"
#include "cohort/parallel/ddp/settings/comm_hook.h"
#include "cohort/parallel/ddp/settings/purpose.h"

namespace cohort::ddp {

/// Returns the purpose for which `audience`'s reducer calls a collective.
comm::CalledFor called_for(Audience audience, const comm::Purpose& of_module, const comm::Purpose& of_reducer);

/// Whether an operation may return before it ends. A synchronous one runs in the calling thread if the backend can.
enum class ReduceMode : uint8_t { kAsync, kSync };

class BucketReduction {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  /// `input`, whose group is used, must outlive this.
  explicit BucketReduction(const EngineInput& input);
  /// Call it when the input has another group.
  void use_group();

  void set_hook(CommHook hook) { hook_ = std::move(hook); }
  bool has_hook() const { return static_cast<bool>(hook_); }
  /// If false, gradients stay where autograd has put them: a single rank has nothing to reduce.
  bool needs_buckets() const { return world_size_ > 1 || hook_; }
  /// Whether the gradients of the bucket are taken together, once all have arrived.
  bool takes_all(const Bucket& bucket) const {
    return input_.options.batched_grad_copy && needs_buckets() && !bucket.is_sparse();
  }

  /// Begins a step.
  void prepare();
  /// Divides the next step's gradients by the number of ranks that have data.
  void divide_next_by(int num_live) { next_divisor_ = num_live; }
  int divisor() const { return divisor_; }
  Averaging averaging() const;

  bool runs_in_caller() const { return runs_in_caller_; }
  /// See [Note: last bucket].
  bool is_left_to_end(size_t bucket, size_t num_buckets) const {
    return runs_in_caller_ && (bucket + 1 == num_buckets || !has_core_to_overlap_);
  }

  /// Collective.
  WorkPtr reduce(const Bucket& bucket, ReduceMode mode) const;
  WorkPtr reduce_parts(std::vector<at::Tensor> parts, ReduceMode mode) const;
  WorkPtr all_reduce(const at::Tensor& tensor, ReduceMode mode) const;
  /// Calls the hook, which is foreign code, for bucket number `index`, with `buffer` in place of its contents.
  CommHookFuture call_hook(BucketSet& buckets, size_t index, const at::Tensor& buffer) const;

 private:
  const EngineInput& input_;
  int world_size_ = 1;
  bool runs_in_caller_ = false;
  bool has_core_to_overlap_ = false;
  int divisor_ = 1;       // of this step's gradients
  int next_divisor_ = 0;  // 0 means the number of all ranks
  CommHook hook_;
};

}  // namespace cohort::ddp
