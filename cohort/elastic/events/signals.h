/// Signals as something to wait for, instead of handlers that may run anywhere.
#pragma once

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::elastic {

/// "SIGTERM,SIGINT" as numbers; an unknown name, SIGKILL or SIGSTOP is an error.
base::Result<std::vector<int>> parse_signals(const std::string& text);

/// Blocks the given signals for as long as it lives and hands them out one by one.
/// Those that still wait when it ends are dropped.
/// A SIGHUP that our starter set to be ignored (nohup) is left alone.
/// Thread-safety: create it before any thread is started; threads inherit what is blocked.
class SignalSource {
 public:
  static base::Result<SignalSource> create(const std::vector<int>& signals);
  SignalSource(SignalSource&& other) noexcept = default;
  ~SignalSource();

  /// Readable while a signal waits.
  int fd() const { return fd_.get(); }
  /// The next signal; nothing if none waits.
  std::optional<int> next();

 private:
  SignalSource() = default;
  base::Fd fd_;
  sigset_t mask_before_{};
};

}  // namespace cohort::elastic
