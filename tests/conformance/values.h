/// Inputs and expected results of the conformance suite: small integers that every rank can compute for all, exact in every
/// dtype, so that results are compared bit by bit.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <string>
#include <vector>

namespace cohort::test {

using RedOp = c10d::ReduceOp::RedOpType;

/// Every dtype that a backend has to serve.
const std::vector<at::ScalarType>& all_dtypes();
/// Every operation that means something on `dtype`.
std::vector<RedOp> operations_on(at::ScalarType dtype);
/// The factor of PREMUL_SUM on `rank`.
int64_t factor_of(int rank);
c10d::ReduceOp make_op(RedOp op, int rank);

/// `count` elements of rank `rank`, one dimension; `salt` tells tensors of one rank apart.
at::Tensor values(at::ScalarType dtype, int64_t count, int rank, int salt = 0);
/// The same for reductions: small enough to stay exact.
at::Tensor reducible(at::ScalarType dtype, RedOp op, int64_t count, int rank, int salt = 0);
/// What `op` makes of reducible(dtype, op, count, rank, salt) for every rank of `world_size`.
at::Tensor reduced(at::ScalarType dtype, RedOp op, int64_t count, int world_size, int salt = 0);

enum class Layout { kContiguous, kStrided, kTransposed };
std::string name_of(Layout layout);

/// A tensor in a buffer whose other bytes must not change.
struct Placed {
  at::Tensor tensor;
  at::Tensor buffer;
};
Placed place(const at::Tensor& flat, Layout layout);
/// The same with undefined content, for outputs.
Placed place_output(at::ScalarType dtype, int64_t count, Layout layout);

/// Throws std::runtime_error unless `actual` holds `expected` (flat), bit by bit, with nothing else changed in its buffer.
void expect_placed(const Placed& actual, const at::Tensor& expected, const std::string& what);

}  // namespace cohort::test
