/// Turns LibTorch's warnings on this thread into messages of the library, which do not break a progress line on the terminal.
#pragma once

#include "cohort/export.h"

namespace cohort::train::detail {

/// While it lives, warnings appear on a terminal as `[cohort] warning: LibTorch: text`. A program's own handler, and outputs
/// other than terminals, get them unchanged. Destroy it on the thread that constructed it.
class COHORT_TEST_API TorchWarnings {
 public:
  TorchWarnings();
  ~TorchWarnings();
  TorchWarnings(const TorchWarnings&) = delete;
  TorchWarnings& operator=(const TorchWarnings&) = delete;
};

}  // namespace cohort::train::detail
