/// SkipInit: modules are constructed without random numbers, for values that are replaced at once, as after a restart. Drawing
/// them takes longer than all else: 25 M parameters of a GPT cost 0.2 s, and LibTorch's layers draw theirs first.
///
///     std::optional<checkpoint::SkipInit> skip;
///     if (checkpoint::is_restart()) skip.emplace();
///     GPT net(options);
///     skip.reset();
#pragma once

#include <memory>

#include "cohort/export.h"

namespace cohort::checkpoint {

/// While it lives, normal_() and uniform_() of this thread leave tensors as they are, new ones with whatever was in memory, and
/// draw nothing from the generator. Everything else happens. As torch.nn.utils.skip_init of Python, for all modules.
/// Thread-safety: of one thread; destroyed in the thread that made it.
class COHORT_API SkipInit {
 public:
  /// Throws c10::NotImplementedError where another library uses the same dispatch key (docs/design/libtorch_overrides.md).
  SkipInit();
  ~SkipInit();
  SkipInit(const SkipInit&) = delete;
  SkipInit& operator=(const SkipInit&) = delete;

 private:
  struct Guard;
  const std::unique_ptr<Guard> guard_;
};

/// True if the launcher has started these workers in the place of others that failed (TORCHELASTIC_RESTART_COUNT > 0).
COHORT_API bool is_restart();

}  // namespace cohort::checkpoint
