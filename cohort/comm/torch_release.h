/// The LibTorch release this library was compiled against, compared with the one the process has loaded.
///
/// LibTorch keeps no binary compatibility between releases: code compiled against 2.13 may crash, or compute nonsense, with
/// the libraries of 2.12. So libcohort.so compares both when it is loaded, and ends the process with a clear message when
/// they differ. Patch releases (2.13.0, 2.13.1) are compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/export.h"

namespace cohort::comm {

struct TorchRelease {
  int major = 0;
  int minor = 0;
  int patch = 0;
};

/// The release whose headers this library was compiled with.
COHORT_API TorchRelease built_torch_release();

/// The release of the libtorch_cpu.so in this process; absent if it is too old to say (before 2.9).
COHORT_API std::optional<TorchRelease> loaded_torch_release();

/// Pure. Returns: what to tell the user when the two do not fit, or an empty text. `library` is where the loaded
/// libtorch_cpu.so lies; empty if unknown.
COHORT_API std::string explain_torch_mismatch(const TorchRelease& built, const std::optional<TorchRelease>& loaded,
                                              const std::string& library);

}  // namespace cohort::comm
