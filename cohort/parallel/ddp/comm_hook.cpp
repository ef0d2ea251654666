#include "cohort/parallel/ddp/comm_hook.h"

#include <ATen/core/jit_type.h>

#include <utility>

#include "cohort/comm/backend/host_program.h"

namespace cohort::ddp {

CommHookFuture completed_future(const at::Tensor& value) {
  std::vector<c10::Device> devices;
  if (!value.is_cpu()) devices.push_back(value.device());
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get(), std::move(devices));
  future->markCompleted(value);
  return future;
}

at::Tensor tensor_of(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  TORCH_CHECK(value.isTensorList() && !value.toTensorList().empty(),
              "expected the hook result is either a Tensor or a TensorList found ", value.tagKind());
  return value.toTensorList().get(0);
}

at::Tensor result_of(const CommHookFuture& future) {
  const comm::HostUnlocked unlocked;
  future->waitAndThrow();
  return tensor_of(future->value());
}

void wait_for_all(std::vector<CommHookFuture>& futures) {
  if (futures.empty()) return;
  const auto waited_for = std::exchange(futures, {});  // destroyed with the host's lock held
  const comm::HostUnlocked unlocked;
  for (const auto& future : waited_for) future->waitAndThrow();
}

CommHookFuture run_comm_hook(const CommHook& hook, GradBucket& bucket) {
  auto future = hook(bucket);
  TORCH_CHECK(future, "DDP communication hook's callback must return a future, but got a null pointer for bucket ",
              bucket.index(),
              ". Return work->getFuture() of an operation, a future made from it by then(), or "
              "cohort::ddp::completed_future(bucket.buffer())");
  return future;
}

}  // namespace cohort::ddp
