#include "cohort/store/tcp/connection.h"

#include <sys/socket.h>

#include <cerrno>

namespace cohort::store {

Connection::Input Connection::receive(std::span<char> buffer) {
  const auto size = recv(socket(), buffer.data(), buffer.size(), 0);
  if (size > 0) {
    requests_.feed({buffer.data(), static_cast<size_t>(size)});
    return Input::kSome;
  }
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return Input::kNone;
  return Input::kEnd;
}

bool Connection::send_answers() {
  while (has_answers()) {
    const auto size = send(socket(), answers_.data() + num_sent_, answers_.size() - num_sent_, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) break;
    num_sent_ += static_cast<size_t>(size);
  }
  const bool is_whole = !has_answers() || errno == EAGAIN;
  drop_sent();
  return is_whole;
}

// Removes sent bytes once they are the larger part, so that each byte is moved at most once more.
void Connection::drop_sent() {
  if (num_sent_ == answers_.size()) {
    std::string().swap(answers_);
  } else if (num_sent_ > answers_.size() / 2) {
    answers_.erase(0, num_sent_);
  } else {
    return;
  }
  num_sent_ = 0;
}

}  // namespace cohort::store
