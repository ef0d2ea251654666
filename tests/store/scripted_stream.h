/// A connection to a server that has its answers written down: no socket, no process.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "cohort/store/stream/stream.h"

namespace cohort::store {

class ScriptedStream final : public Stream {
 public:
  /// `answer` gives the bytes that follow a request; they come in pieces of `piece` bytes at most, and then the server hangs up.
  explicit ScriptedStream(std::function<std::string()> answer, size_t piece = 1 << 20)
      : answer_(std::move(answer)), piece_(piece) {}

  base::Result<void> send(std::string_view, Clock::time_point) override {
    unread_.erase(0, position_);
    position_ = 0;
    unread_ += answer_();
    return {};
  }
  base::Result<size_t> receive(char* buffer, size_t size, Clock::time_point) override {
    const auto count = std::min({size, piece_, unread_.size() - position_});
    std::memcpy(buffer, unread_.data() + position_, count);
    position_ += count;
    return count;
  }

 private:
  const std::function<std::string()> answer_;
  const size_t piece_;
  std::string unread_;
  size_t position_ = 0;
};

}  // namespace cohort::store
