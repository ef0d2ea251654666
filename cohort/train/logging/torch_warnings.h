/// LibTorch's warnings of this thread as messages of the library, which leave a line that is rewritten on the terminal whole.
#pragma once

#include "cohort/export.h"

namespace cohort::train::detail {

/// While one lives, on a terminal: `[cohort] warning: LibTorch: text`. A program's own handler, and other outputs, get them as
/// ever. It ends on the thread where it began.
class COHORT_TEST_API TorchWarnings {
 public:
  TorchWarnings();
  ~TorchWarnings();
  TorchWarnings(const TorchWarnings&) = delete;
  TorchWarnings& operator=(const TorchWarnings&) = delete;
};

}  // namespace cohort::train::detail
