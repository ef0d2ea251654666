#include "cohort/parallel/fsdp/settings/comm_plugins.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "cohort/parallel/fsdp/settings/purpose.h"

namespace cohort::fsdp {

at::Tensor Comm::allocate(int64_t num_elements, const at::TensorOptions& options) {
  return at::empty({num_elements}, options);
}

WorkPtr AllGather::operator()(const at::Tensor& output, const at::Tensor& input, const Group& group, bool async_op) {
  const comm::CalledFor purpose(kExchange);
  return all_gather_single(output, input, {.group = group, .async_op = async_op});
}

WorkPtr ReduceScatter::operator()(const at::Tensor& output, const at::Tensor& input, const Group& group, ReduceOp op,
                                  bool async_op) {
  const comm::CalledFor purpose(kExchange);
  return reduce_scatter_single(output, input, {.op = op, .group = group, .async_op = async_op});
}

at::Tensor allocate_from(const Group& group, int64_t num_elements, const at::TensorOptions& options) {
  const auto device = options.device();
  const auto backend = group->getBackend(device.type());
  if (!backend->supportsTensorAlloc(device.index())) return at::empty({num_elements}, options);
  return backend->allocateTensor(num_elements, options);
}

}  // namespace cohort::fsdp
