#include "cohort/parallel/activation/saved_tensor_hooks.h"

#include <ATen/SavedTensorHooks.h>
#include <c10/util/Exception.h>

#include <string_view>
#include <type_traits>

#include "cohort/parallel/activation/hooks_engine.h"

namespace cohort {
namespace {

// [Note: where guards are kept]
// Hooks must follow backward into its threads, as Python's do, or a function that is recomputed there would save other tensors
// than in forward. Of the state that at::ThreadLocalState passes on, this is the part that others may extend: a list in which
// each reader finds its own kind.
struct PackHookInfo final : c10::DebugInfoBase {
  explicit PackHookInfo(PackHook hook) : pack(std::make_shared<const PackHook>(std::move(hook))) {}
  std::shared_ptr<const PackHook> pack;
};

// Before LibTorch 2.13 kinds are an enumeration, with unused numbers above its own values.
template <class Kind>
Kind pack_hook_kind() {
  if constexpr (std::is_enum_v<Kind>) {
    return static_cast<Kind>(0xc0);
  } else {
    static constexpr std::string_view kName = "COHORT_PACK_HOOK";
    return Kind(&kName);
  }
}

std::shared_ptr<PackHookInfo> make_info(PackHook pack) {
  const auto& reason = at::SavedTensorDefaultHooks::get_disabled_error_message();
  TORCH_CHECK(!reason, *reason);
  activation::install_hooks_engine();
  return std::make_shared<PackHookInfo>(std::move(pack));
}

}  // namespace

SavedTensorHooks::SavedTensorHooks(PackHook pack)
    : guard_(pack_hook_kind<c10::DebugInfoKind>(), make_info(std::move(pack))) {}

std::shared_ptr<const PackHook> activation::current_pack_hook() {
  const auto* const info = c10::ThreadLocalDebugInfo::get(pack_hook_kind<c10::DebugInfoKind>());
  return info ? static_cast<const PackHookInfo*>(info)->pack : nullptr;
}

}  // namespace cohort
