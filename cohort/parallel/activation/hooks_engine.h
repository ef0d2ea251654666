/// The autograd engine through which LibTorch asks for hooks written in C++.
///
/// LibTorch's stack of default hooks (ATen/SavedTensorHooks.h) holds Python objects, but code that saves a tensor asks the
/// default engine for hooks, through a virtual function. This engine answers that question and passes everything else on to the
/// engine that was the default before, LibTorch's own or Python's, which keeps all state and all threads.
#pragma once

#include <memory>

#include "cohort/parallel/activation/saved_tensor_hooks.h"

namespace cohort::activation {

/// Makes the default engine ask current_pack_hook(). Cheap if it already does. If libtorch_python is loaded later, it installs
/// its own engine, so each guard calls this again. Thread-safe.
void install_hooks_engine();

/// Returns the innermost hook of this thread, or nullptr.
std::shared_ptr<const PackHook> current_pack_hook();

}  // namespace cohort::activation
