/// Reduction: a ReduceOp on a dtype, expressed with Gloo's own reductions.
///
/// Gloo reduces nine dtypes with SUM, PRODUCT, MIN, MAX and the bitwise three. The rest is composed:
///
///     carrier    the tensor that Gloo reduces instead of the user's: the user's own memory if possible, seen as another
///                dtype of its size if the bits agree (uint64 as int64), otherwise a wider copy (int16 as int32)
///     before     PREMUL_SUM: each rank's carrier is multiplied by its factor
///     after      AVG: the sum is divided by the number of ranks, integers toward zero
///
///     bool: SUM is BOR
///
///     dtype                     SUM, PRODUCT, PREMUL_SUM, B*   MIN, MAX                    AVG
///     Gloo's nine               itself                         itself                      itself; 8-bit integers: int32
///     int16, uint16             int32                          int32                       int32
///     uint32                    int32 (same bits)              int64                       int64
///     uint64                    int64 (same bits)              int64, sign bit flipped     int64, divided unsigned
///     float8 of every kind      float32                        float32                     float32
///     complex                   pairs of reals (SUM, PREMUL)   refused                     pairs of reals
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <optional>
#include <vector>

namespace cohort::comm {

/// The tensor that Gloo reduces instead of a user's tensor.
struct Carrier {
  at::Tensor tensor;
  /// Whether `tensor` has memory of its own, not the user's.
  bool is_copy = false;
};

class Reduction {
 public:
  /// `operation`: named in the error text. Throws c10::ValueError, naming op and dtype, for what cannot be composed: bitwise
  /// operations on floats, MIN, MAX and PRODUCT of complex numbers, AVG of bool, a fractional factor for integers.
  Reduction(const char* operation, const c10d::ReduceOp& op, at::ScalarType dtype);

  c10d::ReduceOp engine_op() const { return engine_op_; }

  /// Returns the carrier of `user`, contiguous. `may_overwrite`: it may be the user's memory, which Gloo then reduces in place.
  Carrier encode(const at::Tensor& user, bool may_overwrite) const;
  /// Whether decode() has something to do for carriers in the user's memory.
  bool has_last_touch() const { return is_average_ || flips_sign_; }
  /// Copies the reduced carrier (with `user`'s number of elements, contiguous) to `user`. `is_copy` as in Carrier.
  void decode(const at::Tensor& carrier, bool is_copy, at::Tensor user, int world_size) const;

 private:
  void plan_dtypes();
  at::Tensor average(at::Tensor carrier, int world_size) const;

  c10d::ReduceOp::RedOpType engine_op_;
  at::ScalarType dtype_;    ///< the user's dtype; of complex tensors the real one
  at::ScalarType seen_as_;  ///< a dtype of the same size
  at::ScalarType carrier_;  ///< the dtype to which seen_as_ is converted
  std::optional<double> factor_;
  bool is_complex_ = false;
  bool is_average_ = false;
  bool flips_sign_ = false;
};

}  // namespace cohort::comm
