#include "cohort/dtensor/wrapper/dispatch_key.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

namespace cohort::dtensor {

std::string user_of_key(c10::DispatchKey key) {
  auto& dispatcher = c10::Dispatcher::singleton();
  if (dispatcher.hasBackendFallbackForDispatchKey(key)) return "there is a fallback for it";
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (op && op->hasKernelForDispatchKey(key)) return "operator " + toString(name) + " has a kernel for it";
  }
  return {};
}

void check_key_is_free(c10::DispatchKey key) {
  const auto user = user_of_key(key);
  TORCH_CHECK_NOT_IMPLEMENTED(
      user.empty(), "[cohort] DTensor: LibTorch's dispatch key ", c10::toString(key),
      ", which DTensor needs for itself, is in use in this process: ", user,
      " (LibTorch " TORCH_VERSION
      ")\n  hint: DTensor is off here; everything else works. Find the library that registers kernels for the key, and "
      "leave it out, or use ShardedTensor (cohort/mesh/sharded_tensor.h), which needs no key");
}

}  // namespace cohort::dtensor
