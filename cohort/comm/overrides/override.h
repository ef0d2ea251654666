/// Registers Cohort's kernels that replace LibTorch's; nothing else in the library registers one (tools/dev/check_overrides.py).
/// Each kernel belongs to a feature. It is registered when a program first uses the feature, for the life of the process.
/// docs/design/libtorch_overrides.md lists them.
///
/// LibTorch calls the kernel that was registered last and hardly reports the others. So each use of a feature checks whether
/// another library has registered a kernel, before or since.
#pragma once

#include <c10/core/DispatchKey.h>
#include <torch/library.h>

#include <string>

#include "cohort/export.h"

namespace cohort::comm {

/// Makes LibTorch call `kernel` for `operation`, such as "aten::batch_norm", at `key`. The first call registers it; every call
/// looks for a kernel of another library. Throws c10::NotImplementedError, with what to do, if there is one. Thread-safe.
COHORT_TEST_API void override_kernel(const char* feature, const std::string& operation, c10::DispatchKey key,
                                     torch::CppFunction kernel);

/// Reserves a dispatch key for a feature. Call it once, before the key's first kernel. Throws c10::NotImplementedError, with what
/// to do, if the key is in use.
COHORT_TEST_API void take_key(const char* feature, c10::DispatchKey key);
/// Sets the kernel for all operations without a kernel of their own at such a key. Call it once.
void override_others(c10::DispatchKey key, torch::CppFunction kernel);

}  // namespace cohort::comm
