/// TcpClient: a store on another process's server: ours (tcp_server.h), or the server of PyTorch's and LibTorch's TCPStore.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "cohort/store/keys/patience.h"
#include "cohort/store/keys/store.h"
#include "cohort/store/stream/socket.h"
#include "cohort/store/tcp/protocol.h"

namespace cohort::store {

struct TcpClientOptions {
  std::string host = "127.0.0.1";
  int port = 29500;
  /// The limit for connecting, and the initial timeout() of the store.
  std::chrono::milliseconds timeout = Store::kDefaultTimeout;
  base::IpFamily family = base::IpFamily::kAny;
  /// The limit for answers to requests that the server answers at once, and for waiting until a full connection accepts more
  /// data.
  std::chrono::milliseconds answer_timeout = std::chrono::seconds(60);
  /// Makes answer_timeout longer for this client and its clones. If null, it stays as it is.
  std::shared_ptr<Patience> patience;
  /// If not empty, the server must have the same token (token.h).
  std::string token;
};

/// Whether connect() has found a store that refuses this process: one of them has a token that the other lacks.
bool is_refusal(const base::Error& error);

class TcpClient final : public Store {
 public:
  /// Waits until a server answers at that address.
  static Result<std::unique_ptr<TcpClient>> connect(const TcpClientOptions& options);
  /// Uses an existing connection to a store; for tests, in which a store answers as it likes.
  static std::unique_ptr<TcpClient> on(base::Fd socket, const TcpClientOptions& options);

  Result<void> set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key) override;
  Result<int64_t> add(const std::string& key, int64_t number) override;
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override;
  Result<bool> delete_key(const std::string& key) override;
  Result<bool> check(const Keys& keys) override;
  Result<int64_t> num_keys() override;
  Result<void> wait(const Keys& keys, Milliseconds timeout) override;
  Result<void> append(const std::string& key, const std::string& value) override;
  Result<Values> multi_get(const Keys& keys) override;
  Result<void> multi_set(const Keys& keys, const Values& values) override;
  Result<void> queue_push(const std::string& key, const std::string& value) override;
  Result<std::optional<std::string>> queue_pop(const std::string& key, bool block) override;
  Result<int64_t> queue_len(const std::string& key) override;
  Result<Keys> list_keys() override;
  Result<void> barrier(const std::string& key, int64_t world_size, Milliseconds timeout) override;
  Result<std::unique_ptr<Store>> clone() override;
  void interrupt() override;
  bool can_be_interrupted() const override { return true; }

  /// The numeric addresses of this connection's two ends, without ports.
  std::string own_address() const;
  std::string server_address() const;

 private:
  TcpClient(const TcpClientOptions& options, base::Fd socket);

  Result<void> begin();
  Result<void> prove_token();
  /// Sends a request that has no answer. Waits for the server if it may refuse the keys.
  Result<void> tell(Request request);
  Result<void> ping();
  Result<void> await_echo(uint32_t number, Milliseconds timeout);
  bool is_token_wanted() const;
  /// Sends a request with the user's keys; on the wire they begin with "/", as PyTorch's do.
  Result<void> send(Request request);
  Result<void> send_bytes(std::string_view bytes);
  Result<void> receive(char* bytes, size_t size, Milliseconds timeout);
  Result<uint64_t> receive_number(size_t width, Milliseconds timeout);
  Result<std::string> receive_text();
  Result<int64_t> ask_number(Request request);
  /// Sends a kWait or kBarrier and waits for its answer; cancels it after the timeout.
  Result<bool> await(Request request, Milliseconds timeout);
  enum class Ready { kYes, kNo, kInterrupted };
  Ready poll_socket(short events, std::chrono::steady_clock::time_point deadline);
  /// Waits for an answer, or until a full connection accepts more. Sets `timeout` to the time waited if patience made it longer.
  Ready await_server(short events, std::chrono::steady_clock::time_point begin, Milliseconds* timeout);
  Result<void> wait_locked(const Keys& keys, Milliseconds timeout);
  /// Ends the connection, because an answer that arrives later would be taken for the next one.
  base::Error lost(const std::string& what);

  const TcpClientOptions options_;
  std::mutex mutex_;
  base::Fd socket_;
  /// Readable once the client is interrupted.
  const base::Fd interrupt_;
  /// Whether a request has named keys that a server with a token would have refused.
  bool has_named_protected_keys_ = false;
  std::optional<base::Error> refusal_;
};

}  // namespace cohort::store
