/// Bucket: gradients of several parameters, reduced in one operation. They lie side by side in one flat tensor, as aliases of it
/// (alias_of() of bucket_memory.h), or each stays where autograd has put it (in_place.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/ddp/buckets/device_streams.h"
#include "cohort/parallel/ddp/settings/comm_hook.h"

namespace c10d {
class Work;
}

namespace cohort::ddp {

/// How gradients are divided by the number of ranks: PyTorch's two roundings.
enum class Averaging {
  kMultiply,       ///< times 1 / world size
  kDivideInPlace,  ///< divided by world size when the gradient is already in the bucket (gradient_as_bucket_view)
  kNone            ///< not divided: a communication hook averages
};

class COHORT_TEST_API Bucket {
 public:
  /// Requires parameters of one dtype on one device, or a single parameter with a sparse gradient. `contents`: a flat tensor of
  /// all their elements, in which the gradients live; undefined for a sparse gradient. Gradients that arrive in another dtype
  /// than the parameters' are reduced in `contents`, which has the gradients' dtype, and live in `gradients`, another flat
  /// tensor.
  /// `in_place`: empty, or a flag per parameter: such gradients take no room in `contents`. The reduction of a bucket with
  /// gradients in place divides by the number of ranks; take() then does not.
  Bucket(std::vector<size_t> indices, const std::vector<at::Tensor>& parameters, at::Tensor contents,
         at::Tensor gradients = {}, const std::vector<char>& in_place = {});

  const std::vector<size_t>& indices() const { return indices_; }
  bool is_sparse() const { return is_sparse_; }
  bool has_in_place() const { return has_in_place_; }
  /// Returns the tensors to reduce: plain ones, in the same order on all ranks. Call it once all gradients are taken.
  std::vector<at::Tensor> parts() const;
  /// Returns zeros in place of parts(), for a rank that takes part without gradients.
  std::vector<at::Tensor> zero_parts(const std::vector<at::Tensor>& parameters) const;
  /// The flat tensor. If the gradient is sparse: the gradient itself.
  const at::Tensor& contents() const { return contents_; }
  /// The tensor in which the gradients live after the reduction; undefined if the gradient is sparse.
  const at::Tensor& gradients() const { return gradients_; }
  const at::Tensor& alias(size_t slot) const { return aliases_[slot]; }

  /// Puts the parameter's gradient, averaged, into the slot and makes the slot the parameter's gradient.
  /// An undefined gradient counts as zeros and stays undefined. Returns the tensor that was the gradient before, if it was
  /// another one: its destructor is foreign code, so release it while holding no lock.
  at::Tensor take(size_t slot, const at::Tensor& parameter, int world_size, Averaging averaging);
  /// Replaces the contents with a communication hook's result. Throws c10::Error for another number of elements.
  void accept(const at::Tensor& result);
  /// After the reduction: makes the slot the parameter's gradient, whatever its gradient was.
  void give(size_t slot, const at::Tensor& parameter);
  /// After the reduction, instead of give(): the parameter keeps its present gradient.
  void forget(size_t slot);
  /// Instead of give() and forget(), if the reduction failed or is not over: others may still write to a tensor that was taken in
  /// place, so the parameter gets a copy of it.
  void abandon(size_t slot, const at::Tensor& parameter);
  /// Does take() for all slots of a dense bucket at once; averages by dividing the whole bucket.
  std::vector<at::Tensor> take_all(const std::vector<at::Tensor>& parameters, int world_size, Averaging averaging);
  /// Keeps gradients that live in an older bucket when buckets are rebuilt.
  void adopt(size_t slot, const at::Tensor& parameter);

  size_t num_pending = 0;  ///< gradients that this step still waits for
  FillingStreams filling;  ///< streams that have filled it since the last reduction
  c10::intrusive_ptr<c10d::Work> work;
  CommHookFuture future;  ///< instead of `work` if there is a communication hook

 private:
  void take_sparse(const at::Tensor& parameter, int world_size, Averaging averaging);
  at::Tensor take_in_place(size_t slot, const at::Tensor& parameter);

  std::vector<size_t> indices_;
  bool is_sparse_;
  bool has_in_place_ = false;
  std::vector<char> is_in_place_;  // by slot
  at::Tensor contents_;
  at::Tensor gradients_;             // contents_, or a tensor of its own
  std::vector<at::Tensor> slots_;    // in contents_
  std::vector<at::Tensor> aliases_;  // in gradients_; of a slot in place: the taken tensor, until give() or forget()
  std::vector<at::Tensor> layouts_;  // of slots in place: as at construction, when the ranks compared them
};

/// Computes destination = source * factor, bitwise as at::mul does. Requires the same shape, dtype and device.
COHORT_TEST_API void scale_into(const at::Tensor& destination, const at::Tensor& source, double factor);

}  // namespace cohort::ddp
