/// Connection: one client of a TcpServer. Private to this folder; used by the server's thread alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"
#include "cohort/store/tcp/protocol.h"

namespace cohort::store {

class Connection {
 public:
  explicit Connection(base::Fd socket) : socket_(std::move(socket)) {}

  int socket() const { return socket_.get(); }
  RequestReader& requests() { return requests_; }
  bool is_validated() const { return is_validated_; }
  void set_validated() { is_validated_ = true; }
  /// Whether it has proved that it has the server's token.
  bool is_trusted() const { return is_trusted_; }
  void set_trusted() { is_trusted_ = true; }

  enum class Input { kSome, kNone, kEnd };
  /// Receives the bytes that have arrived, at most as many as `buffer` holds.
  Input receive(std::span<char> buffer);
  void answer(std::string_view bytes) { answers_.append(bytes); }
  /// Sends what the socket accepts. Returns false if the connection is broken.
  bool send_answers();
  bool has_answers() const { return num_sent_ < answers_.size(); }
  /// Whether it accepts its answers too slowly to read more requests from it.
  bool is_congested() const { return answers_.size() - num_sent_ > kMostAnswers; }

  /// The bytes that it holds: incomplete requests, and answers that are not sent.
  size_t num_bytes() const { return requests_.num_bytes_held() + answers_.size(); }

  /// The events that epoll was last told to watch.
  uint32_t watched_events = 0;
  /// The part of num_bytes() that the server has counted.
  size_t counted_bytes = 0;

 private:
  void drop_sent();

  static constexpr size_t kMostAnswers = 1024 * 1024;

  base::Fd socket_;
  RequestReader requests_;
  std::string answers_;
  size_t num_sent_ = 0;
  bool is_validated_ = false;
  bool is_trusted_ = false;
};

}  // namespace cohort::store
