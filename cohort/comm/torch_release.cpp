#include "cohort/comm/torch_release.h"

#include <dlfcn.h>
#include <torch/headeronly/version.h>

#include <cstdio>
#include <cstdlib>

// Part of LibTorch's stable C interface. Weak, so that a LibTorch without it still loads far enough to be named.
extern "C" __attribute__((weak)) uint64_t aoti_torch_abi_version();

namespace cohort::comm {
namespace {

std::string to_text(const TorchRelease& release) {
  return std::to_string(release.major) + "." + std::to_string(release.minor) + "." + std::to_string(release.patch);
}

std::string loaded_library() {
  Dl_info info{};
  const auto address = reinterpret_cast<const void*>(&aoti_torch_abi_version);
  if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

}  // namespace

TorchRelease built_torch_release() { return {TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH}; }

std::optional<TorchRelease> loaded_torch_release() {
  if (&aoti_torch_abi_version == nullptr) return std::nullopt;
  const uint64_t packed = aoti_torch_abi_version();
  return TorchRelease{static_cast<int>(packed >> 56 & 0xff), static_cast<int>(packed >> 48 & 0xff),
                      static_cast<int>(packed >> 40 & 0xff)};
}

std::string explain_torch_mismatch(const TorchRelease& built, const std::optional<TorchRelease>& loaded,
                                   const std::string& library) {
  if (loaded && loaded->major == built.major && loaded->minor == built.minor) return "";
  const std::string found = loaded ? "LibTorch " + to_text(*loaded) : "a LibTorch older than 2.9";
  return "[cohort] libcohort.so cannot be used with the LibTorch in this process\n"
         "  built against: LibTorch " +
         to_text(built) + "\n" + "  loaded: " + found + (library.empty() ? "" : " from " + library) + "\n" +
         "  hint: take the other release out of LD_LIBRARY_PATH or the Python environment, or build Cohort again with "
         "-DCOHORT_TORCH_ROOT=<that LibTorch>\n";
}

namespace {

// Before main, and before anything of LibTorch is called with the wrong layout in mind.
const bool kChecked = [] {
  const std::string problem = explain_torch_mismatch(built_torch_release(), loaded_torch_release(), loaded_library());
  if (problem.empty()) return true;
  std::fputs(problem.c_str(), stderr);
  std::_Exit(EXIT_FAILURE);
}();

}  // namespace
}  // namespace cohort::comm
