/// Writes many workers' lines to one stream: complete lines, each with its worker's prefix, and without ever blocking.
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

/// Splits a stream into lines and puts the prefix before each. "\r" and "\r\n" end a line, too, so that progress bars stay
/// readable.
class PrefixedLines {
 public:
  explicit PrefixedLines(std::string prefix) : prefix_(std::move(prefix)) {}
  /// Returns the lines that `chunk` completes, and keeps the rest for the next chunk.
  std::string append(std::string_view chunk);
  /// Returns the rest at the end of the stream, as a line.
  std::string finish();

 private:
  std::string prefix_;
  std::string line_;
  bool after_carriage_return_ = false;
};

/// Buffers text until one of the launcher's streams can take it: a pager that does not read must not keep the launcher from
/// seeing signals and exits.
/// Thread-safety: every function may be called from any thread.
class Console {
 public:
  explicit Console(int fd);
  int fd() const { return fd_; }
  void append(std::string_view text);
  bool has_pending() const;
  /// Whether so much text waits that its sources should wait, too.
  bool is_full() const;
  /// Writes a few lines if the stream takes them now. Returns false if it took none, or none wait. If the stream is closed, its
  /// text is dropped from now on.
  bool write_some();
  /// Writes all that the stream takes now.
  void write_all();
  void drop_pending();

 private:
  static constexpr size_t kFullBytes = 1 << 20;
  const int fd_;
  /// The same pipe or terminal, opened again so that a write to it never waits; invalid if that is not permitted. The flags of
  /// `fd_` itself cannot be changed, because other processes share them.
  base::Fd own_;
  mutable std::mutex mutex_;
  std::string pending_;
  bool broken_ = false;
};

/// The launcher's own stdout and stderr. While it lives, messages of log.h go through `errors`, so a process that does not read
/// them cannot keep the launcher from ending its workers. Only one may exist at a time.
class Consoles {
 public:
  Consoles();
  /// Waits for the rest as finish() does, at most `patience`.
  ~Consoles();
  Consoles(const Consoles&) = delete;
  Consoles& operator=(const Consoles&) = delete;

  /// Adds the watches that write text. The watches must not outlive this object.
  void add_watches(std::vector<Watch>& watches);
  /// Writes all that the streams take now.
  void write_all();
  /// Waits until both streams have taken all text, a signal comes, or `limit` is over, and then drops the rest.
  void finish(SignalSource* signals, std::optional<std::chrono::milliseconds> limit);

  Console output;
  Console errors;
  /// The time for which a stream may take nothing at the end.
  std::chrono::milliseconds patience{30'000};
};

}  // namespace cohort::elastic
