/// The connection of a rank of another node to this snapshot server over TCP: the rank proves that it belongs to the job, then
/// writes and reads files. Private to this folder; only the server's thread uses it. It never waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cohort/base/file/file.h"
#include "cohort/snapshot/message.h"
#include "cohort/snapshot/server_files.h"

namespace cohort::snapshot {

class RemoteClient {
 public:
  using Clock = std::chrono::steady_clock;
  /// The time within which a client must prove that it belongs to the job.
  static constexpr std::chrono::seconds kGreetingTime{10};

  /// Returns the secret that this launcher shares with that of a node; "" if there is none.
  using KeyOfNode = std::function<std::string(uint32_t node)>;
  RemoteClient(base::Fd socket, KeyOfNode key_of_node);

  int socket() const { return socket_.get(); }
  /// The events that poll should wait for.
  short events() const;
  /// Does all that it can without waiting. Returns false when the connection is over.
  bool advance(ServerFiles& files);
  bool is_trusted() const { return is_trusted_; }
  bool is_too_late(Clock::time_point now) const { return !is_trusted_ && now - opened_at_ > kGreetingTime; }

 private:
  enum class Step { kGoOn, kWait, kEnd };
  Step send_waiting();
  Step receive_message(ServerFiles& files);
  Step receive_payload();
  Step check_proof();
  Step answer(ServerFiles& files);
  Step begin_write(const ServerFiles::File* file);
  Step begin_read(const ServerFiles::File* file);
  Step say(const Reply& reply);
  bool has_output() const { return !output_.empty() || send_left_ > 0; }

  base::Fd socket_;
  const KeyOfNode key_of_node_;
  const Clock::time_point opened_at_ = Clock::now();
  std::string nonce_;
  bool is_trusted_ = false;
  /// The message that is being received.
  std::string input_;
  Request request_;
  std::string output_;
  /// An own descriptor, because the server may delete the file meanwhile.
  base::Fd file_;
  uint64_t receive_offset_ = 0;
  uint64_t receive_left_ = 0;
  int64_t send_offset_ = 0;
  uint64_t send_left_ = 0;
  std::vector<char> buffer_;
};

}  // namespace cohort::snapshot
