#include "cohort/parallel/ddp/hooks/all_reduce_hook.h"

#include <ATen/core/jit_type.h>

#include "cohort/comm/collectives/collectives.h"

namespace cohort::ddp {

Group group_of_hook(const Group& group) {
  auto result = group ? group : default_group();
  TORCH_CHECK_VALUE(is_member(result), "[cohort] this rank is not a member of the communication hook's process group");
  return result;
}

CommHookFuture all_reduce_average(const Group& group, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const auto ranks = group_of_hook(group);
  tensor.div_(ranks->getSize());  // first, so that a narrow dtype does not overflow
  return all_reduce(tensor, {.group = ranks, .async_op = true})
      ->getFuture()
      ->then([](c10::ivalue::Future& done) { return c10::IValue(tensor_of(done.value())); }, c10::TensorType::get());
}

CommHookFuture allreduce_hook(const Group& process_group, GradBucket& bucket) {
  return all_reduce_average(process_group, bucket.buffer());
}

}  // namespace cohort::ddp
