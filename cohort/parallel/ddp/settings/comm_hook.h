/// Communication hooks: functions of the user that reduce a bucket of gradients instead of the all-reduce.
///
///     auto halves = [](cohort::Group& group, cohort::ddp::GradBucket& bucket) {
///       bucket.buffer().mul_(0.5);
///       return cohort::ddp::allreduce_hook(group, bucket);
///     };
///     ddp->register_comm_hook(cohort::default_group(), halves);
///
/// The contract is that of DistributedDataParallel.register_comm_hook (torch/nn/parallel/distributed.py). The hook is called once
/// per bucket and step, in the order of the buckets, on every rank. Gradients have not been divided by the number of ranks. The
/// value of the future, a tensor of as many elements as the buffer (or a list that begins with one), replaces the bucket,
/// converted to its dtype. The future may complete in any thread, any time before the end of backward, which waits for it.
/// Ready-made hooks: parallel/ddp/hooks/.
///
/// Thread-safety: hooks run in the thread that runs backward, one at a time, and no lock is held meanwhile.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/ddp/settings/grad_bucket.h"

namespace cohort::ddp {

using CommHookFuture = c10::intrusive_ptr<c10::ivalue::Future>;
/// A hook with its state bound to it.
using CommHook = std::function<CommHookFuture(GradBucket&)>;

/// PyTorch's c10d::BuiltinCommHookType.
enum class BuiltinCommHookType : uint8_t { kAllReduce, kFp16Compress };

/// Returns a future that already has `value`, for hooks that communicate nothing, or not asynchronously.
COHORT_API CommHookFuture completed_future(const at::Tensor& value);

/// Returns the tensor of a future's value: the value itself, or the first of a list, as Work::getFuture() gives it.
/// Throws c10::Error for anything else (PyTorch's text).
COHORT_API at::Tensor tensor_of(const c10::IValue& value);

/// False for an empty std::function or a null pointer.
template <class Hook>
bool is_callable(Hook& hook) {
  if constexpr (std::is_constructible_v<bool, Hook&> && !std::is_class_v<Hook>) return hook != nullptr;
  if constexpr (requires { hook.target_type(); }) return static_cast<bool>(hook);
  return true;
}

/// Throws c10::TypeError for an empty std::function or a null pointer (PyTorch's text).
template <class State, class Hook>
requires std::is_invocable_r_v<CommHookFuture, Hook&, State&, GradBucket&> CommHook bind_state(State state, Hook hook) {
  TORCH_CHECK_TYPE(is_callable(hook), "Communication hook must be callable.");
  return [state = std::move(state), hook = std::move(hook)](GradBucket& bucket) mutable { return hook(state, bucket); };
}

}  // namespace cohort::ddp
