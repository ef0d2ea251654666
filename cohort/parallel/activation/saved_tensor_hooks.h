/// Decides what autograd keeps instead of the tensors that it saves for backward: torch.autograd.graph.saved_tensors_hooks.
///
///     const cohort::SavedTensorHooks hooks([](const at::Tensor& saved) -> cohort::UnpackHook {
///       return [half = saved.to(at::kHalf), dtype = saved.scalar_type()] { return half.to(dtype); };
///     });
///
/// `pack` is called for each tensor that an operation saves while the guard lives. It returns a function, which is called when
/// backward needs the tensor, and must return one with the same values, sizes, dtype and device. The function is destroyed when
/// the graph releases the tensor. Only the innermost guard counts. Errors of either function pass through the operation, or
/// through backward.
/// - `pack` runs without gradients and must not modify its tensor. If the tensor is the operation's own result, the returned
///   function must not hold it, or neither is ever freed: hold `saved.detach()`.
/// - Guards belong to their thread and end in reverse order. Backward passes them on to the threads in which it runs.
/// - In a process with Python, hooks of Python apply if there are no hooks of C++.
/// PyTorch source: torch/autograd/graph.py, torch/csrc/autograd/saved_variable.cpp.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <functional>
#include <memory>
#include <utility>

#include "cohort/export.h"

namespace cohort {

/// May be called several times, if a graph is kept.
using UnpackHook = std::function<at::Tensor()>;
using PackHook = std::function<UnpackHook(const at::Tensor&)>;

class COHORT_API SavedTensorHooks {
 public:
  /// Throws c10::Error if LibTorch's own hooks are disabled in this thread, with the reason that was given then.
  explicit SavedTensorHooks(PackHook pack);
  /// Takes hooks in Python's form: `unpack` gets the result of `pack`.
  template <class Pack, class Unpack>
  SavedTensorHooks(Pack pack, Unpack unpack)
      : SavedTensorHooks([pack = std::move(pack), unpack = std::move(unpack)](const at::Tensor& saved) -> UnpackHook {
          return [unpack, packed = pack(saved)] { return unpack(packed); };
        }) {}
  SavedTensorHooks(const SavedTensorHooks&) = delete;
  SavedTensorHooks& operator=(const SavedTensorHooks&) = delete;

 private:
  c10::DebugInfoGuard guard_;
};

}  // namespace cohort
