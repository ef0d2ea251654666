#include "cohort/elastic/console.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace cohort::elastic {
namespace {

constexpr size_t kLongestLine = 1 << 20;

}  // namespace

std::string PrefixedLines::append(std::string_view chunk) {
  std::string lines;
  for (const char c : chunk) {
    const bool second_half = c == '\n' && after_carriage_return_;
    after_carriage_return_ = c == '\r';
    if (second_half) continue;
    if (c != '\n' && c != '\r') line_ += c;
    if (c == '\n' || c == '\r' || line_.size() >= kLongestLine) {
      lines.append(prefix_).append(line_).push_back('\n');
      line_.clear();
    }
  }
  return lines;
}

std::string PrefixedLines::finish() {
  if (line_.empty()) return {};
  std::string line = prefix_ + line_ + "\n";
  line_.clear();
  return line;
}

void Console::append(std::string_view text) {
  if (!broken_) pending_ += text;
}

void Console::write_some() {
  // A writable pipe takes PIPE_BUF bytes at once. Ending at a line's end keeps others from writing into our line.
  size_t size = std::min<size_t>(pending_.size(), PIPE_BUF);
  const size_t newline = size == 0 ? std::string::npos : pending_.rfind('\n', size - 1);
  if (newline != std::string::npos) size = newline + 1;
  const ssize_t written = ::write(fd_, pending_.data(), size);
  if (written >= 0) {
    pending_.erase(0, static_cast<size_t>(written));
  } else if (errno != EAGAIN && errno != EINTR) {
    broken_ = true;
    pending_.clear();
  }
}

}  // namespace cohort::elastic
