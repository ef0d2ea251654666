#include "cohort/comm/overrides/override.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace cohort::comm {
namespace {

// Lives as long as the process, like the dispatcher's tables.
struct Registered {
  std::mutex mutex;
  std::map<std::pair<std::string, c10::DispatchKey>, std::unique_ptr<torch::Library>> libraries;  // by namespace
  std::set<std::pair<std::string, c10::DispatchKey>> operations;

  torch::Library& library_of(const std::string& space, c10::DispatchKey key) {
    auto& library = libraries[{space, key}];
    if (!library) library = std::make_unique<torch::Library>(torch::Library::IMPL, space, key, __FILE__, __LINE__);
    return *library;
  }
};

Registered& registered() {
  static auto* const instance = new Registered;
  return *instance;
}

c10::OperatorHandle find_operation(const std::string& name) {
  const auto dot = name.find('.');
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.substr(0, dot).c_str(),
                                                        dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
}

// Returns a part of a sentence such as "operator aten::add.Tensor has a kernel for it"; empty if nobody uses `key`.
std::string user_of_key(c10::DispatchKey key) {
  auto& dispatcher = c10::Dispatcher::singleton();
  if (dispatcher.hasBackendFallbackForDispatchKey(key)) return "there is a fallback for it";
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (op && op->hasKernelForDispatchKey(key)) return "operator " + toString(name) + " has a kernel for it";
  }
  return {};
}

}  // namespace

void override_kernel(const char* feature, const std::string& operation, c10::DispatchKey key,
                     torch::CppFunction kernel) {
  const auto op = find_operation(operation);
  const std::string ours = c10::str("registered by Cohort for ", feature);
  auto& all = registered();
  const std::lock_guard lock(all.mutex);
  const bool is_new = !all.operations.contains({operation, key});
  const auto active =
      is_new && !op.hasKernelForDispatchKey(key) ? ours : op.getComputedKernelForDispatchKey(key).debug();
  TORCH_CHECK_NOT_IMPLEMENTED(
      active == ours, "[cohort] ", feature, ": another library has a kernel of its own for LibTorch's operator ",
      operation, " at the dispatch key ", c10::toString(key), " (", active,
      "), and LibTorch calls only one of the two\n  hint: ", feature,
      " is off here; everything else works. Leave that library out, or see docs/design/libtorch_overrides.md for what "
      "needs this operator");
  if (!is_new) return;
  all.library_of(operation.substr(0, operation.find("::")), key).impl(operation.c_str(), std::move(kernel).debug(ours));
  all.operations.insert({operation, key});
}

void take_key(const char* feature, c10::DispatchKey key) {
  const auto user = user_of_key(key);
  TORCH_CHECK_NOT_IMPLEMENTED(
      user.empty(), "[cohort] ", feature, ": LibTorch's dispatch key ", c10::toString(key), ", which ", feature,
      " needs for itself, is in use in this process: ", user, " (LibTorch " TORCH_VERSION ")\n  hint: ", feature,
      " is off here; everything else works. Find the library that registers kernels for the key, and leave it out");
}

void override_others(c10::DispatchKey key, torch::CppFunction kernel) {
  auto& all = registered();
  const std::lock_guard lock(all.mutex);
  all.library_of("_", key).fallback(std::move(kernel));
}

}  // namespace cohort::comm
