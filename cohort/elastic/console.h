/// Many workers' lines on one stream: whole lines, each with its worker's prefix, without ever blocking.
#pragma once

#include <string>
#include <string_view>

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
class Console {
 public:
  explicit Console(int fd) : fd_(fd) {}
  int fd() const { return fd_; }
  void append(std::string_view text);
  bool has_pending() const { return !pending_.empty(); }
  /// True when so much waits that its sources should wait too.
  bool is_full() const { return pending_.size() > kFullBytes; }
  /// Requires that poll reported the stream writable. A stream that is gone drops its text from now on.
  void write_some();
  void drop_pending() { pending_.clear(); }

 private:
  static constexpr size_t kFullBytes = 1 << 20;
  int fd_;
  std::string pending_;
  bool broken_ = false;
};

}  // namespace cohort::elastic
