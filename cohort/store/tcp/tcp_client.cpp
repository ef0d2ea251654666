#include "cohort/store/tcp/tcp_client.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "cohort/base/net/address.h"
#include "cohort/base/system/deadline.h"
#include "cohort/base/text/text.h"
#include "cohort/store/keys/waiting.h"
#include "cohort/store/tcp/token.h"

namespace cohort::store {
namespace {

using base::Error;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kProbeTime{300};
constexpr size_t kFirstPiece = 64 * 1024;

std::string end_of_connection(int socket, int (*ask)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (ask(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  return base::numeric_address(reinterpret_cast<sockaddr*>(&address));
}

}  // namespace

// A refusal with a cause may also come from a store that has just ended.
bool is_refusal(const Error& error) { return error.message().starts_with("refused: ") && !error.cause(); }

TcpClient::TcpClient(const TcpClientOptions& options, base::Fd socket)
    : options_(options), socket_(std::move(socket)), interrupt_(eventfd(0, EFD_CLOEXEC)) {}

void TcpClient::interrupt() {
  const uint64_t one = 1;
  [[maybe_unused]] const auto size = write(interrupt_.get(), &one, sizeof(one));
}

std::string TcpClient::own_address() const { return end_of_connection(socket_.get(), getsockname); }
std::string TcpClient::server_address() const { return end_of_connection(socket_.get(), getpeername); }

Store::Result<std::unique_ptr<TcpClient>> TcpClient::connect(const TcpClientOptions& options) {
  auto socket = connect_to(options.host, options.port, options.timeout, options.family);
  if (!socket) return socket.error();
  auto client = on(std::move(*socket), options);
  if (auto begun = client->begin(); !begun) {
    return Error(base::host_and_port(options.host, options.port) + " is not a store").caused_by(begun.error());
  }
  if (!options.token.empty()) {
    if (auto proved = client->prove_token(); !proved) return proved.error();
  }
  return client;
}

std::unique_ptr<TcpClient> TcpClient::on(base::Fd socket, const TcpClientOptions& options) {
  std::unique_ptr<TcpClient> client(new TcpClient(options, std::move(socket)));
  client->set_timeout(options.timeout);
  return client;
}

Store::Result<void> TcpClient::begin() {
  const auto number = static_cast<uint32_t>(getpid());
  if (auto sent = send_bytes(greeting(number)); !sent) return sent;
  return await_echo(number, std::clamp(options_.timeout, milliseconds(1), options_.answer_timeout));
}

Store::Result<void> TcpClient::ping() {
  const auto number = static_cast<uint32_t>(getpid());
  if (auto sent = send({.query = Query::kPing, .keys = {}, .values = {}, .number = number}); !sent) return sent;
  return await_echo(number, options_.answer_timeout);
}

Store::Result<void> TcpClient::await_echo(uint32_t number, Milliseconds timeout) {
  const auto echo = receive_number(4, timeout);
  if (!echo) return echo.error();
  if (*echo != number) return Error("it answers a ping with another number");
  return {};
}

Store::Result<void> TcpClient::prove_token() {
  const auto where = base::host_and_port(options_.host, options_.port);
  std::string server_nonce(kNonceBytes, '\0');
  auto sent = send({.query = Query::kChallenge, .keys = {}, .values = {}, .number = 0});
  const auto has_token = sent ? receive_number(1, options_.answer_timeout) : sent.error();
  if (!has_token)
    return Error(fmt::format("refused: the store on {} knows no tokens", where)).caused_by(has_token.error());
  if (auto got = receive(server_nonce.data(), server_nonce.size(), options_.answer_timeout); !got) return got;
  if (*has_token == 0) {
    return Error(fmt::format("refused: this process has a token, the store on {} has none", where))
        .with_hint("give every process of the job the same token, or none");
  }
  const auto nonce = random_nonce();
  const auto proof = proof_of(Side::kClient, options_.token, server_nonce, nonce);
  if (sent = send({.query = Query::kProve, .keys = {}, .values = {nonce + proof}, .number = 0}); !sent) return sent;
  const auto verdict = receive_number(1, options_.answer_timeout);
  if (!verdict) return verdict.error();
  std::string server_proof(kProofBytes, '\0');
  if (auto got = receive(server_proof.data(), server_proof.size(), options_.answer_timeout); !got) return got;
  const auto expected = proof_of(Side::kServer, options_.token, server_nonce, nonce);
  if (*verdict == static_cast<uint64_t>(kReady) && is_same_proof(server_proof, expected)) return {};
  return Error(fmt::format("refused: the store on {} has another token than this process", where))
      .with_hint("give every process of the job the same token");
}

// Whether the server tells a new client without a token that it needs one.
bool TcpClient::is_token_wanted() const {
  auto socket = connect_to(options_.host, options_.port, kProbeTime, options_.family);
  if (!socket) return false;
  TcpClient probe(options_, std::move(*socket));
  if (!probe.begin() || !probe.send({.query = Query::kChallenge, .keys = {}, .values = {}, .number = 0})) return false;
  const auto answer = probe.receive_number(1, kProbeTime);
  return answer && *answer == 1;
}

Error TcpClient::lost(const std::string& what) {
  if (socket_ && has_named_protected_keys_ && is_token_wanted()) {
    refusal_ =
        Error(fmt::format("refused: keys under \"{}\" of the store on {} are for processes with its token",
                          std::string(kProtectedPrefix), base::host_and_port(options_.host, options_.port)))
            .with_hint(
                "set COHORT_TOKEN, or --rdzv-conf token_file=FILE, to the token that the store was started with");
  }
  socket_.reset();
  if (refusal_) return *refusal_;
  return Error(fmt::format("the store on {} is lost: {}", base::host_and_port(options_.host, options_.port), what))
      .with_hint("see whether the process that hosts it has ended");
}

Store::Result<void> TcpClient::send(Request request) {
  if (!socket_) return lost("an earlier operation failed");
  for (auto& key : request.keys) {
    if (options_.token.empty() && key.starts_with(kProtectedPrefix)) has_named_protected_keys_ = true;
    key.insert(0, 1, '/');
  }
  return send_bytes(encode(request));
}

Store::Result<void> TcpClient::send_bytes(std::string_view bytes) {
  auto timeout = options_.answer_timeout;
  for (size_t sent = 0; sent < bytes.size();) {
    const auto size = ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size >= 0) {
      sent += static_cast<size_t>(size);
    } else if (errno == EAGAIN) {
      const auto ready = await_server(POLLOUT, Clock::now(), &timeout);
      if (ready == Ready::kInterrupted) return lost("interrupted");
      if (ready == Ready::kYes) continue;
      return lost(fmt::format("it has accepted no data for {}", base::format_duration(timeout)));
    } else if (errno != EINTR) {
      return lost(base::errno_text(errno));
    }
  }
  return {};
}

TcpClient::Ready TcpClient::poll_socket(short events, Clock::time_point deadline) {
  std::array<pollfd, 2> fds = {pollfd{socket_.get(), events, 0}, pollfd{interrupt_.get(), POLLIN, 0}};
  const int ready = poll_until(fds, deadline);
  if (fds[1].revents != 0) return Ready::kInterrupted;
  return ready == 0 ? Ready::kNo : Ready::kYes;
}

TcpClient::Ready TcpClient::await_server(short events, Clock::time_point begin, Milliseconds* timeout) {
  const auto ready = poll_socket(events, base::deadline_after(*timeout, begin));
  if (ready != Ready::kNo || !options_.patience) return ready;
  const auto extended = options_.patience->use();
  if (extended <= *timeout) return ready;
  *timeout = extended;
  return poll_socket(events, base::deadline_after(*timeout, begin));
}

Store::Result<void> TcpClient::tell(Request request) {
  if (auto sent = send(std::move(request)); !sent) return sent;
  return has_named_protected_keys_ ? ping() : Result<void>();
}

Store::Result<void> TcpClient::receive(char* bytes, size_t size, Milliseconds timeout) {
  const auto begin = Clock::now();
  while (size > 0) {
    const auto ready = await_server(POLLIN, begin, &timeout);
    if (ready == Ready::kInterrupted) return lost("interrupted");
    if (ready == Ready::kNo) return lost(fmt::format("it gave no answer within {}", base::format_duration(timeout)));
    const auto count = recv(socket_.get(), bytes, size, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return lost(base::errno_text(errno));
    if (count == 0) return lost("it has closed the connection");
    bytes += count;
    size -= static_cast<size_t>(count);
  }
  return {};
}

Store::Result<uint64_t> TcpClient::receive_number(size_t width, Milliseconds timeout) {
  unsigned char bytes[8];
  if (auto got = receive(reinterpret_cast<char*>(bytes), width, timeout); !got) return got.error();
  uint64_t number = 0;
  for (size_t i = width; i-- > 0;) number = number << 8 | bytes[i];
  return number;
}

Store::Result<std::string> TcpClient::receive_text() {
  const auto size = receive_number(8, options_.answer_timeout);
  if (!size) return size.error();
  if (*size > kMaxAnswerBytes) return lost(fmt::format("it announces a value of {} bytes", *size));
  // Allocates memory as bytes arrive: a server may announce many bytes and never send them.
  std::string text;
  while (text.size() < *size) {
    const auto begin = text.size();
    text.resize(std::min<size_t>(*size, std::max(2 * begin, kFirstPiece)));
    if (auto got = receive(&text[begin], text.size() - begin, options_.answer_timeout); !got) return got.error();
  }
  return text;
}

Store::Result<int64_t> TcpClient::ask_number(Request request) {
  const std::lock_guard lock(mutex_);
  if (auto sent = send(std::move(request)); !sent) return sent.error();
  const auto number = receive_number(8, options_.answer_timeout);
  if (!number) return number.error();
  return static_cast<int64_t>(*number);
}

Store::Result<bool> TcpClient::await(Request request, Milliseconds timeout) {
  if (auto sent = send(std::move(request)); !sent) return sent.error();
  const auto ready = poll_socket(POLLIN, base::deadline_after(timeout));
  if (ready == Ready::kInterrupted) return lost("interrupted");
  const bool is_late = ready == Ready::kNo;
  if (is_late) {
    if (auto sent = send({.query = Query::kCancelWait, .keys = {}, .values = {}, .number = 0}); !sent)
      return sent.error();
  }
  auto answer = receive_number(1, options_.answer_timeout);
  if (!answer) return answer.error();
  if (!is_late || *answer == static_cast<uint64_t>(kCanceled)) return !is_late;
  // The answer came while the request was being canceled; the answer to the cancellation follows.
  if (answer = receive_number(1, options_.answer_timeout); !answer) return answer.error();
  return true;
}

Store::Result<void> TcpClient::wait_locked(const Keys& keys, Milliseconds timeout) {
  const auto came = await({.query = Query::kWait, .keys = keys, .values = {}, .number = 0}, timeout);
  if (!came) return came.error();
  if (!*came) return wait_timed_out(timeout, keys);
  return {};
}

Store::Result<void> TcpClient::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  return tell({.query = Query::kSet, .keys = {key}, .values = {value}, .number = 0});
}

Store::Result<std::string> TcpClient::get(const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (auto waited = wait_locked({key}, timeout()); !waited) return waited.error();
  if (auto sent = send({.query = Query::kGet, .keys = {key}, .values = {}, .number = 0}); !sent) return sent.error();
  return receive_text();
}

Store::Result<int64_t> TcpClient::add(const std::string& key, int64_t number) {
  return ask_number({.query = Query::kAdd, .keys = {key}, .values = {}, .number = number});
}

Store::Result<std::string> TcpClient::compare_set(const std::string& key, const std::string& expected,
                                                  const std::string& desired) {
  const std::lock_guard lock(mutex_);
  auto sent = send({.query = Query::kCompareSet, .keys = {key}, .values = {expected, desired}, .number = 0});
  if (!sent) return sent.error();
  return receive_text();
}

Store::Result<bool> TcpClient::delete_key(const std::string& key) {
  const auto count = ask_number({.query = Query::kDeleteKey, .keys = {key}, .values = {}, .number = 0});
  if (!count) return count.error();
  return *count == 1;
}

Store::Result<bool> TcpClient::check(const Keys& keys) {
  const std::lock_guard lock(mutex_);
  if (auto sent = send({.query = Query::kCheck, .keys = keys, .values = {}, .number = 0}); !sent) return sent.error();
  const auto answer = receive_number(1, options_.answer_timeout);
  if (!answer) return answer.error();
  return *answer == 0;
}

Store::Result<int64_t> TcpClient::num_keys() {
  return ask_number({.query = Query::kNumKeys, .keys = {}, .values = {}, .number = 0});
}

Store::Result<void> TcpClient::wait(const Keys& keys, Milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  return wait_locked(keys, timeout);
}

Store::Result<void> TcpClient::append(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  return tell({.query = Query::kAppend, .keys = {key}, .values = {value}, .number = 0});
}

Store::Result<Store::Values> TcpClient::multi_get(const Keys& keys) {
  const std::lock_guard lock(mutex_);
  if (auto waited = wait_locked(keys, timeout()); !waited) return waited.error();
  if (auto sent = send({.query = Query::kMultiGet, .keys = keys, .values = {}, .number = 0}); !sent)
    return sent.error();
  Values values;
  for (size_t i = 0; i < keys.size(); ++i) {
    auto value = receive_text();
    if (!value) return value.error();
    values.push_back(std::move(*value));
  }
  return values;
}

Store::Result<void> TcpClient::multi_set(const Keys& keys, const Values& values) {
  if (keys.size() != values.size()) return wrong_count(keys.size(), values.size());
  const std::lock_guard lock(mutex_);
  return tell({.query = Query::kMultiSet, .keys = keys, .values = values, .number = 0});
}

Store::Result<void> TcpClient::queue_push(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  return tell({.query = Query::kQueuePush, .keys = {key}, .values = {value}, .number = 0});
}

Store::Result<std::optional<std::string>> TcpClient::queue_pop(const std::string& key, bool block) {
  Pauses pauses(timeout());
  const std::lock_guard lock(mutex_);
  while (true) {
    if (block) {
      const auto waited = wait_locked({key}, pauses.left());
      if (!waited) return is_timeout(waited.error()) ? wait_timed_out(timeout(), {key}) : waited.error();
    }
    auto sent = send({.query = Query::kQueuePop, .keys = {key}, .values = {}, .number = 0});
    if (!sent) return sent.error();
    const auto count = receive_number(8, options_.answer_timeout);
    if (!count) return count.error();
    if (*count > 0) {
      auto value = receive_text();
      if (!value) return value.error();
      return std::optional(std::move(*value));
    }
    if (!block) return std::optional<std::string>();
    // Another client was faster, or the key has a value, which counts as existing and hides the queue.
    if (!pauses.rest()) return wait_timed_out(timeout(), {key});
  }
}

Store::Result<int64_t> TcpClient::queue_len(const std::string& key) {
  return ask_number({.query = Query::kQueueLen, .keys = {key}, .values = {}, .number = 0});
}

Store::Result<Store::Keys> TcpClient::list_keys() {
  const std::lock_guard lock(mutex_);
  if (auto sent = send({.query = Query::kListKeys, .keys = {}, .values = {}, .number = 0}); !sent) return sent.error();
  const auto count = receive_number(8, options_.answer_timeout);
  if (!count) return count.error();
  Keys keys;
  uint64_t num_bytes = 0;
  for (uint64_t i = 0; i < *count; ++i) {
    auto key = receive_text();
    if (!key) return key.error();
    num_bytes += sizeof(uint64_t) + key->size();
    if (num_bytes > kMaxAnswerBytes) return lost(fmt::format("its keys take more than {} bytes", kMaxAnswerBytes));
    // Keys of clients that are not PyTorch's may lack the prefix.
    keys.push_back(key->substr(key->compare(0, 1, "/") == 0 ? 1 : 0));
  }
  return keys;
}

Store::Result<void> TcpClient::barrier(const std::string& key, int64_t world_size, Milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  const auto came = await({.query = Query::kBarrier, .keys = {key}, .values = {}, .number = world_size}, timeout);
  if (!came) return came.error();
  if (!*came) return barrier_timed_out(timeout, key);
  return {};
}

Store::Result<std::unique_ptr<Store>> TcpClient::clone() {
  auto options = options_;
  options.timeout = timeout();
  auto client = connect(options);
  if (!client) return client.error();
  return std::unique_ptr<Store>(std::move(*client));
}

}  // namespace cohort::store
