/// BucketReduction: by which operations a step's buckets are reduced, what they divide by, and which of them wait for the end of
/// backward.
///
/// [Note: last bucket] When the last bucket is full, nothing is left to overlap its reduction with. On a backend that runs
/// synchronous operations in the calling thread ("shm"), the end of backward reduces it that way, which wakes no other thread.
/// With one core per rank there is nothing to overlap any bucket with: the end of backward reduces them all.
///
/// Thread-safety: none; the engine's lock, which call_hook() does without.
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

/// For what `reader`'s reducer calls a collective.
comm::CalledFor called_for(Reader reader, const comm::Purpose& of_module, const comm::Purpose& of_reducer);

/// If an operation may return before it ends. One that may not runs in the calling thread, where the backend can.
enum class ReduceMode : uint8_t { kAsync, kSync };

class BucketReduction {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  /// `input`, whose group is asked, must outlive this.
  explicit BucketReduction(const EngineInput& input);
  /// The input has another group now.
  void use_group();

  void set_hook(CommHook hook) { hook_ = std::move(hook); }
  bool has_hook() const { return static_cast<bool>(hook_); }
  /// Otherwise gradients stay where autograd has put them: a single rank has nothing to reduce.
  bool needs_buckets() const { return world_size_ > 1 || hook_; }
  /// The gradients of the bucket are taken together, once all are there.
  bool takes_all(const Bucket& bucket) const {
    return input_.options.batched_grad_copy && needs_buckets() && !bucket.is_sparse();
  }

  /// A step begins.
  void prepare();
  /// The next step's gradients are divided by the ranks that have data.
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
  int next_divisor_ = 0;  // 0: all ranks
  CommHook hook_;
};

}  // namespace cohort::ddp
