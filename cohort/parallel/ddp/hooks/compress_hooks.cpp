#include "cohort/parallel/ddp/hooks/compress_hooks.h"

#include <ATen/core/jit_type.h>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/ddp/hooks/all_reduce_hook.h"
#include "cohort/parallel/ddp/settings/hook_result.h"

namespace cohort::ddp {
namespace {

// Copies into the existing buffer, so that no third copy of the bucket is needed.
CommHookFuture copied_into(const at::Tensor& buffer, const CommHookFuture& future) {
  return future->then(
      [buffer](c10::ivalue::Future& done) {
        const at::NoGradGuard no_grad;
        buffer.copy_(tensor_of(done.value()));
        return c10::IValue(buffer);
      },
      c10::TensorType::get());
}

CommHookFuture compress(c10::ScalarType dtype, const Group& group, const GradBucket& bucket) {
  const at::NoGradGuard no_grad;
  const auto ranks = group_of_hook(group);
  const auto narrow = bucket.buffer().to(dtype).div_(ranks->getSize());
  return copied_into(bucket.buffer(), all_reduce(narrow, {.group = ranks, .async_op = true})->getFuture());
}

}  // namespace

CommHookFuture fp16_compress_hook(const Group& process_group, GradBucket& bucket) {
  return compress(at::kHalf, process_group, bucket);
}

CommHookFuture bf16_compress_hook(const Group& process_group, GradBucket& bucket) {
  return compress(at::kBFloat16, process_group, bucket);
}

CommHookFuture compress_around(c10::ScalarType dtype, GradBucket& bucket, const CommHook& hook) {
  bucket.set_buffer(bucket.buffer().to(dtype));
  const auto future = run_comm_hook(hook, bucket);
  return copied_into(bucket.buffer(), future);
}

}  // namespace cohort::ddp
