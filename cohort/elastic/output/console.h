/// Many workers' lines on one stream: whole lines, each with its worker's prefix, without ever blocking.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/file/file.h"
#include "cohort/elastic/events/signals.h"
#include "cohort/elastic/events/watch.h"

namespace cohort::elastic {

/// Cuts a stream into lines and puts the prefix before each. "\r" and "\r\n" end a line too, so that progress bars
/// stay readable.
class PrefixedLines {
 public:
  explicit PrefixedLines(std::string prefix) : prefix_(std::move(prefix)) {}
  /// Returns the lines that `chunk` completes; the rest waits for the next chunk.
  std::string append(std::string_view chunk);
  /// Returns what is left at the end of the stream, as a line.
  std::string finish();

 private:
  std::string prefix_;
  std::string line_;
  bool after_carriage_return_ = false;
};

/// Text that waits until one of our own streams can take it: a pager that stands still must not stop the launcher
/// from seeing signals and exits.
/// Thread-safety: every function may be called from any thread.
class Console {
 public:
  explicit Console(int fd);
  int fd() const { return fd_; }
  void append(std::string_view text);
  bool has_pending() const;
  /// True when so much waits that its sources should wait too.
  bool is_full() const;
  /// Writes a few lines if the stream takes them now. False: it took none, or none wait. A stream that is gone drops its text
  /// from now on.
  bool write_some();
  /// Writes all that the stream takes now.
  void write_all();
  void drop_pending();

 private:
  static constexpr size_t kFullBytes = 1 << 20;
  const int fd_;
  /// The same pipe or terminal, opened anew so that a write to it never waits; none where that is not permitted. The flags of
  /// `fd_` itself belong to others, too.
  base::Fd own_;
  mutable std::mutex mutex_;
  std::string pending_;
  bool broken_ = false;
};

/// The launcher's own stdout and stderr. While it lives, messages of log.h go through `errors`: nobody who fails to read them
/// keeps the launcher from ending its workers. There is one at a time.
class Consoles {
 public:
  Consoles();
  /// Waits for the rest as finish() does, at most `patience`.
  ~Consoles();
  Consoles(const Consoles&) = delete;
  Consoles& operator=(const Consoles&) = delete;

  /// What moves text on. The watches must not outlive this object.
  void add_watches(std::vector<Watch>& watches);
  /// Writes what the streams take now.
  void write_all();
  /// Waits until both streams have taken everything, until a signal, or until `limit` is over, and drops the rest then.
  void finish(SignalSource* signals, std::optional<std::chrono::milliseconds> limit);

  Console output;
  Console errors;
  /// How long a stream may take nothing at our end.
  std::chrono::milliseconds patience{30'000};
};

}  // namespace cohort::elastic
