/// One rank of another node that talks to this vault over TCP: proves that it belongs to the job, then writes and reads files.
/// Private to this folder; the server's thread alone uses it. It never waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cohort/base/file/file.h"
#include "cohort/vault/message.h"
#include "cohort/vault/vault.h"

namespace cohort::vault {

class RemoteConnection {
 public:
  using Clock = std::chrono::steady_clock;
  /// A client that has not proved within this time what it is, is none.
  static constexpr std::chrono::seconds kGreetingTime{10};

  /// What this launcher and that of a node must have in common; "": nothing.
  using KeyOfNode = std::function<std::string(uint32_t node)>;
  RemoteConnection(base::Fd socket, KeyOfNode key_of_node);

  int socket() const { return socket_.get(); }
  /// What poll should wait for.
  short events() const;
  /// Does what can be done now. False: the connection is over.
  bool advance(Vault& vault);
  bool is_trusted() const { return is_trusted_; }
  bool is_too_late(Clock::time_point now) const { return !is_trusted_ && now - opened_at_ > kGreetingTime; }

 private:
  enum class Step { kGoOn, kWait, kEnd };
  Step send_waiting();
  Step receive_message(Vault& vault);
  Step receive_payload();
  Step check_proof();
  Step answer(Vault& vault);
  Step begin_write(const Vault::File* file);
  Step begin_read(const Vault::File* file);
  Step say(const Reply& reply);
  bool has_output() const { return !output_.empty() || send_left_ > 0; }

  base::Fd socket_;
  const KeyOfNode key_of_node_;
  const Clock::time_point opened_at_ = Clock::now();
  std::string nonce_;
  bool is_trusted_ = false;
  /// Of the message that is awaited.
  std::string input_;
  Request request_;
  std::string output_;
  /// Its own descriptors: the vault may drop a file meanwhile.
  base::Fd file_;
  uint64_t receive_offset_ = 0;
  uint64_t receive_left_ = 0;
  int64_t send_offset_ = 0;
  uint64_t send_left_ = 0;
  std::vector<char> buffer_;
};

}  // namespace cohort::vault
