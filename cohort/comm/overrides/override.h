/// Cohort's kernels in the place of LibTorch's: nothing else in the library registers one (tools/dev/check_overrides.py). Each
/// belongs to a feature, and is registered when a program first uses that, for as long as the process lives.
/// docs/design/libtorch_overrides.md lists them.
///
/// LibTorch calls the kernel that was registered last, and says little of the others. So each use of a feature finds out whether
/// another library has done the same, before or since.
#pragma once

#include <c10/core/DispatchKey.h>
#include <torch/library.h>

#include <string>

#include "cohort/export.h"

namespace cohort::comm {

/// Has LibTorch call `kernel` for `operation`, "aten::batch_norm", at `key`. The first call registers it, each one looks for a
/// kernel of another library. Throws c10::NotImplementedError, with what to do, where there is one. Thread-safe.
COHORT_TEST_API void override_kernel(const char* feature, const std::string& operation, c10::DispatchKey key,
                                     torch::CppFunction kernel);

/// For a feature that has a dispatch key to itself. Call it once, before the key's first kernel. Throws
/// c10::NotImplementedError, with what to do, if the key is in use.
COHORT_TEST_API void take_key(const char* feature, c10::DispatchKey key);
/// Of such a key: what LibTorch calls for all operations without a kernel for it. Once.
void override_others(c10::DispatchKey key, torch::CppFunction kernel);

}  // namespace cohort::comm
