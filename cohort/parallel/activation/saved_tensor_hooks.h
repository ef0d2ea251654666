/// Decides what autograd keeps in place of tensors that it saves for backward: torch.autograd.graph.saved_tensors_hooks.
///
///     const cohort::SavedTensorHooks hooks([](const at::Tensor& saved) -> cohort::UnpackHook {
///       return [half = saved.to(at::kHalf), dtype = saved.scalar_type()] { return half.to(dtype); };
///     });
///
/// `pack` is called for each tensor that an operation saves while the guard lives; what it returns is called when backward needs
/// the tensor, and must give one of the same values, sizes, dtype and device. It is destroyed when the graph lets go of the
/// tensor. Only the innermost guard counts. Errors of either pass through the operation, or through backward.
/// - `pack` runs without gradients and must not modify its tensor. What it returns must not hold that very tensor where it is the
///   operation's own result, or neither is ever freed: hold `saved.detach()`.
/// - Guards belong to their thread and end in reverse order. Backward hands them to the threads in which it runs.
/// - Beside Python in one process, hooks of Python apply where there are none of C++.
/// PyTorch source: torch/autograd/graph.py, torch/csrc/autograd/saved_variable.cpp.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <functional>
#include <memory>
#include <utility>

#include "cohort/export.h"

namespace cohort {

/// May be called several times, where a graph is kept.
using UnpackHook = std::function<at::Tensor()>;
using PackHook = std::function<UnpackHook(const at::Tensor&)>;

class COHORT_API SavedTensorHooks {
 public:
  /// Throws c10::Error where LibTorch's own hooks are disabled in this thread, with the reason that was given then.
  explicit SavedTensorHooks(PackHook pack);
  /// In Python's form: `unpack` is given what `pack` returned.
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
