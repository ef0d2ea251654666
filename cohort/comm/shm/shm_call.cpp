#include "cohort/comm/shm/shm_call.h"

#include "cohort/comm/tensors/operation_text.h"
#include "cohort/comm/tensors/tensor_checks.h"

namespace cohort::comm {

job::Operation describe(const ShmCall& call, at::TensorList shown, const ShmIdentity& identity) {
  job::Operation operation{.name = call.operation->name,
                           .sequence = call.sequence,
                           .point_to_point = call.operation->is_point_to_point,
                           .group = identity.group,
                           .rank = identity.rank,
                           .world_size = identity.world_size,
                           .host = identity.host,
                           .backend = "shm",
                           .num_bytes = 0,
                           .dtype = {},
                           .shape = {},
                           .root = call.root,
                           .reduce_op = {}};
  for (const auto& tensor : shown) {
    operation.num_bytes += tensor.is_sparse() ? 0 : static_cast<int64_t>(tensor.nbytes());
  }
  if (!shown.empty()) operation.dtype = dtype_name(shown.front().scalar_type());
  if (call.operation->shows_shapes) operation.shape = shapes_text(shown);
  if (call.reduce_op != c10d::ReduceOp::UNUSED) {
    c10d::ReduceOp op;
    op.op_ = call.reduce_op;
    operation.reduce_op = reduce_op_name(op);
  }
  return operation;
}

}  // namespace cohort::comm
