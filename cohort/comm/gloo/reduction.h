/// Reduction: a ReduceOp on a dtype, in terms of what Gloo reduces.
///
/// Gloo reduces nine dtypes with SUM, PRODUCT, MIN, MAX and the bitwise three. The rest is composed:
///
///     carrier    the tensor that Gloo reduces in place of the user's: the user's own memory where it can be, seen as another
///                dtype of its size where the bits agree (uint64 as int64), else a wider copy (int16 as int32)
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

/// One user's tensor and what Gloo reduces in its place.
struct Carrier {
  at::Tensor tensor;
  /// Not the user's memory.
  bool is_copy = false;
};

class Reduction {
 public:
  /// `operation` is for the message. Throws c10::ValueError, naming op and dtype, for what no composition can do: bitwise
  /// operations on floats, MIN, MAX and PRODUCT of complex numbers, AVG of bool, a fractional factor for integers.
  Reduction(const char* operation, const c10d::ReduceOp& op, at::ScalarType dtype);

  c10d::ReduceOp engine_op() const { return engine_op_; }

  /// The carrier of `user`, contiguous. `may_overwrite`: it may be the user's memory, which Gloo then reduces in place.
  Carrier encode(const at::Tensor& user, bool may_overwrite) const;
  /// True if decode() has something to do for carriers that are the user's memory.
  bool has_last_touch() const { return is_average_ || flips_sign_; }
  /// Brings the reduced carrier (with `user`'s number of elements, contiguous) to `user`. `is_copy` as in Carrier.
  void decode(const at::Tensor& carrier, bool is_copy, at::Tensor user, int world_size) const;

 private:
  void plan_dtypes();
  at::Tensor average(at::Tensor carrier, int world_size) const;

  c10d::ReduceOp::RedOpType engine_op_;
  at::ScalarType dtype_;    ///< the user's; of complex tensors the real one
  at::ScalarType seen_as_;  ///< a dtype of the same size
  at::ScalarType carrier_;  ///< what seen_as_ is converted to
  std::optional<double> factor_;
  bool is_complex_ = false;
  bool is_average_ = false;
  bool flips_sign_ = false;
};

}  // namespace cohort::comm
