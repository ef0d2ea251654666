/// Bucket: gradients of several parameters that are reduced in one operation. They live side by side in one flat tensor, as
/// aliases of it (alias_of() of bucket_memory.h), or each where autograd has put it (in_place.h).
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

/// How gradients are divided by the number of ranks; the two roundings of PyTorch.
enum class Averaging {
  kMultiply,       ///< times 1 / world size
  kDivideInPlace,  ///< divided by world size when the gradient is already in the bucket (gradient_as_bucket_view)
  kNone            ///< not at all: a communication hook averages
};

class COHORT_TEST_API Bucket {
 public:
  /// Requires parameters of one dtype on one device, or a single one with a sparse gradient. `contents`: a flat tensor of all
  /// their elements for the gradients to live in; undefined for a sparse one. Gradients that arrive in another dtype than that
  /// of the parameters are reduced in `contents`, of the dtype they have, and live in `gradients`, another flat tensor.
  /// `in_place`: a flag per parameter, or none: gradients that take no room in `contents`. The reduction of a bucket that has
  /// such divides, so that take() does not.
  Bucket(std::vector<size_t> indices, const std::vector<at::Tensor>& parameters, at::Tensor contents,
         at::Tensor gradients = {}, const std::vector<char>& in_place = {});

  const std::vector<size_t>& indices() const { return indices_; }
  bool is_sparse() const { return is_sparse_; }
  bool has_in_place() const { return has_in_place_; }
  /// What to reduce: plain tensors, in the same order on all ranks. Once all gradients are taken.
  std::vector<at::Tensor> parts() const;
  /// Zeros in place of parts(): of a rank that takes part without gradients.
  std::vector<at::Tensor> zero_parts(const std::vector<at::Tensor>& parameters) const;
  /// The flat tensor. Sparse: the parameter's gradient itself.
  const at::Tensor& contents() const { return contents_; }
  /// Where the gradients live after the reduction; undefined for a sparse one.
  const at::Tensor& gradients() const { return gradients_; }
  const at::Tensor& alias(size_t slot) const { return aliases_[slot]; }

  /// Puts the parameter's gradient, averaged, into the slot and makes it the parameter's gradient.
  /// An undefined gradient counts as zeros and stays undefined. Returns the tensor that was the gradient before, if it was
  /// another: its destructor is foreign code, so let it go where no lock is held.
  at::Tensor take(size_t slot, const at::Tensor& parameter, int world_size, Averaging averaging);
  /// What a communication hook has made of the bucket becomes its contents. Throws c10::Error for another number of elements.
  void accept(const at::Tensor& result);
  /// After the reduction: makes the slot the parameter's gradient, whatever it was.
  void give(size_t slot, const at::Tensor& parameter);
  /// After the reduction, in place of give(): the parameter keeps the gradient it has.
  void forget(size_t slot);
  /// Instead of both, where the reduction failed or is not over: others may still write to what was taken in place, so the
  /// parameter gets a copy of it.
  void abandon(size_t slot, const at::Tensor& parameter);
  /// take() for all slots of a dense bucket at once; averages by a division of the whole bucket.
  std::vector<at::Tensor> take_all(const std::vector<at::Tensor>& parameters, int world_size, Averaging averaging);
  /// Keeps gradients that live in an older bucket when the buckets are rebuilt.
  void adopt(size_t slot, const at::Tensor& parameter);

  size_t num_pending = 0;  ///< gradients this step still waits for
  FillingStreams filling;  ///< since the last reduction
  c10::intrusive_ptr<c10d::Work> work;
  CommHookFuture future;  ///< in place of `work` where there is a communication hook

 private:
  void take_sparse(const at::Tensor& parameter, int world_size, Averaging averaging);
  at::Tensor take_in_place(size_t slot, const at::Tensor& parameter);

  std::vector<size_t> indices_;
  bool is_sparse_;
  bool has_in_place_ = false;
  std::vector<char> is_in_place_;  // by slot
  at::Tensor contents_;
  at::Tensor gradients_;           // contents_, or apart from it
  std::vector<at::Tensor> slots_;  // in contents_
  std::vector<at::Tensor>
      aliases_;  // in gradients_; of a slot in place: what was taken, until it is given or forgotten
  std::vector<at::Tensor> layouts_;  // of slots in place: as at construction, when the ranks compared them
};

/// destination = source * factor, bitwise as at::mul computes it. Same shape, dtype and device.
COHORT_TEST_API void scale_into(const at::Tensor& destination, const at::Tensor& source, double factor);

}  // namespace cohort::ddp
