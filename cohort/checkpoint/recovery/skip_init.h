/// SkipInit: constructs modules without random numbers, for values that are replaced at once, as after a restart. Drawing
/// them takes longer than all else: for 25 M parameters of a GPT 0.2 s, and LibTorch's layers draw their own values first.
///
///     std::optional<checkpoint::SkipInit> skip;
///     if (checkpoint::is_restart()) skip.emplace();
///     models::GPT net(options);
///     skip.reset();
#pragma once

#include <memory>

#include "cohort/export.h"

namespace cohort::checkpoint {

/// As long as it lives, normal_() and uniform_() of this thread do not change tensors (new ones have undefined content) and draw
/// nothing from the generator. Everything else works as before. Follows Python's torch.nn.utils.skip_init, for all modules.
/// Thread-safety: applies to one thread, which must also destroy it.
class COHORT_API SkipInit {
 public:
  /// Throws c10::NotImplementedError if another library uses the same dispatch key (docs/design/libtorch_overrides.md).
  SkipInit();
  ~SkipInit();
  SkipInit(const SkipInit&) = delete;
  SkipInit& operator=(const SkipInit&) = delete;

 private:
  struct Guard;
  const std::unique_ptr<Guard> guard_;
};

/// Whether the launcher has started these workers to replace others that failed (TORCHELASTIC_RESTART_COUNT > 0).
COHORT_API bool is_restart();

}  // namespace cohort::checkpoint
