#include "cohort/parallel/ddp/settings/comm_hook.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/view_as_real.h>

#include <utility>

#include "cohort/comm/backend/host_program.h"
#include "cohort/parallel/ddp/settings/hook_result.h"

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

void copy_result(const at::Tensor& contents, const at::Tensor& result) {
  const at::NoGradGuard no_grad;
  const bool is_real_view = contents.is_complex() && result.defined() && !result.is_complex();
  const auto to = is_real_view ? at::view_as_real(contents).view(-1) : contents;
  TORCH_CHECK(result.defined() && result.numel() == to.numel(),
              "[cohort] DDP communication hook: the future's tensor must have as many elements as the bucket, ",
              to.numel(), ", got ", result.defined() ? c10::str("sizes ", result.sizes()) : "an undefined tensor");
  const auto flat = result.reshape(-1);
  const bool is_there = flat.scalar_type() == to.scalar_type() && flat.is_contiguous() &&
                        flat.const_data_ptr() == to.const_data_ptr() && flat.is_conj() == to.is_conj();
  if (!is_there) to.copy_(flat);  // most hooks work in place
}

at::Tensor result_of(const CommHookFuture& future) {
  const comm::HostUnlocked unlocked;
  future->waitAndThrow();
  return tensor_of(future->value());
}

void wait_for_all(std::vector<CommHookFuture>& futures) {
  if (futures.empty()) return;
  const auto waited_for = std::exchange(futures, {});  // destroyed while the host program's lock is held
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
