/// The autograd engine through which LibTorch asks for hooks written in C++.
///
/// LibTorch's stack of default hooks (ATen/SavedTensorHooks.h) holds Python objects, but whoever saves a tensor asks the default
/// engine for hooks, by a virtual function. This engine answers that question and passes everything else on to the engine
/// that was the default before, LibTorch's own or Python's, which keeps all state and all threads.
#pragma once

#include <memory>

#include "cohort/parallel/activation/saved_tensor_hooks.h"

namespace cohort::activation {

/// The default engine asks current_pack_hook() when this returns. Cheap when it did before. If libtorch_python is loaded later,
/// it installs its own, so each guard calls this again. Thread-safe.
void install_hooks_engine();

/// The innermost hook of this thread; none: nullptr.
std::shared_ptr<const PackHook> current_pack_hook();

}  // namespace cohort::activation
