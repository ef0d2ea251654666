#include "cohort/store/tcp/tcp_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <set>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cohort/base/log/log.h"
#include "cohort/base/process/process.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "cohort/store/keys/table.h"
#include "cohort/store/stream/log_limit.h"
#include "cohort/store/stream/peer_user.h"
#include "cohort/store/tcp/connection.h"
#include "cohort/store/tcp/token.h"

namespace cohort::store {
namespace {

constexpr uint64_t kStop = 0;
constexpr size_t kMiB = 1024 * 1024;
constexpr size_t kUsualMiB = 1024;
/// A client that holds no more than this is not dropped because others hold much.
constexpr size_t kSmallBytes = 64 * 1024;
constexpr uint64_t kFirstClient = 1 << 16;  // smaller numbers: the stop event and the listeners

// Raises the limit of open files: each client needs a descriptor.
void allow_many_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

bool is_readable(int socket) {
  pollfd poll_fd{socket, POLLIN, 0};
  return poll(&poll_fd, 1, 0) == 1;
}

base::Error system_error(const char* call) { return base::Error(fmt::format("{}: {}", call, base::errno_text(errno))); }

}  // namespace

class TcpServer::Loop {
 public:
  Loop(std::vector<Listener> listeners, base::Fd user_query, std::string token, size_t max_bytes)
      : listeners_(std::move(listeners)),
        user_query_(std::move(user_query)),
        token_(std::move(token)),
        max_bytes_(max_bytes),
        table_([this](uint64_t id) { say_ready(id); }) {}

  ~Loop() {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = write(stop_.get(), &one, sizeof(one));
    thread_.join();
  }

  base::Result<void> start() {
    epoll_ = base::Fd(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_) return system_error("epoll_create1");
    stop_ = base::Fd(eventfd(0, EFD_CLOEXEC));
    if (!stop_) return system_error("eventfd");
    spare_ = base::Fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!watch(stop_.get(), kStop)) return system_error("epoll_ctl");
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (!watch(listeners_[i].socket.get(), i + 1)) return system_error("epoll_ctl");
    }
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
      return base::no_process("cannot start the store's thread", error.code().value());
    }
    pthread_setname_np(thread_.native_handle(), "cohort-store");
    return {};
  }

  int port() const { return listeners_.front().port; }
  size_t num_clients() const { return num_clients_.load(); }

 private:
  using Clients = std::unordered_map<uint64_t, Connection>;

  bool watch(int socket, uint64_t id) {
    epoll_event event{EPOLLIN, {.u64 = id}};
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) == 0;
  }

  void run() {
    std::array<epoll_event, 256> events;
    while (true) {
      const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
      for (int i = 0; i < count; ++i) {
        const auto id = events[static_cast<size_t>(i)].data.u64;
        if (id == kStop) return;
        if (id < kFirstClient) {
          accept_clients(listeners_[id - 1].socket.get());
        } else {
          serve(id, events[static_cast<size_t>(i)].events);
        }
      }
      flush();
    }
  }

  void accept_clients(int listener) {
    while (true) {
      base::Fd socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) {
        // If no descriptors are left, accept fails like this even if no client connects.
        if ((errno != EMFILE && errno != ENFILE) || !is_readable(listener)) return;
        if (!make_room()) return refuse_one(listener);
        continue;
      }
      if (user_query_ && !is_of_own_user(socket.get())) continue;
      watch_peer(socket.get());
      const auto id = next_id_++;
      if (!watch(socket.get(), id)) continue;
      const auto client = clients_.emplace(id, Connection(std::move(socket))).first;
      client->second.watched_events = EPOLLIN;
      unproven_.insert(id);
      num_clients_ = clients_.size();
    }
  }

  // Refuses other users of this host, who could change a job's keys.
  bool is_of_own_user(int socket) {
    const auto user = user_of_peer(user_query_, socket);
    if (!user || is_own_user(*user)) return user.has_value();
    complain(fmt::format("the store refuses its client {}: user {} owns it; COHORT_STORE_ANY_USER=1 admits every user",
                         peer_name(socket), *user));
    return false;
  }

  // Drops the oldest client that has not yet shown that it speaks the protocol.
  bool make_room() {
    if (unproven_.empty()) return false;
    complain("the store drops a client that has sent nothing yet: it has no file descriptors left for others");
    drop(*unproven_.begin());
    return true;
  }

  // If no descriptors are left, accepts the connection with the spare one and closes it, so that it does not wait for ever.
  void refuse_one(int listener) {
    base::warn_once("the store has no file descriptors left for more clients than " + std::to_string(clients_.size()) +
                    "; raise the limit of open files (ulimit -n)");
    spare_.reset();
    base::Fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)).reset();
    spare_ = base::Fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }

  void serve(uint64_t id, uint32_t events) {
    const auto found = clients_.find(id);
    if (found == clients_.end()) return;
    auto& client = found->second;
    touched_.push_back(id);
    if (client.is_congested()) return;
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
    switch (client.receive(buffer_)) {
      case Connection::Input::kSome:
        return answer_requests(id, client);
      case Connection::Input::kNone:
        return;
      case Connection::Input::kEnd:
        return drop(id);
    }
  }

  // Stops if answers pile up; flush() goes on.
  void answer_requests(uint64_t id, Connection& client) {
    while (!client.is_congested()) {
      auto request = client.requests().next();
      if (!request) return refuse(id, request.error().message());
      count(client);
      std::string problem;
      if (*request) problem = find_room_for(**request);
      if (*request && problem.empty()) problem = answer(id, client, **request);
      count(client);
      if (problem.empty()) problem = find_room_for(client);
      if (!problem.empty()) return refuse(id, problem);
      if (!*request) return;
    }
  }

  void count(Connection& client) {
    num_client_bytes_ += client.num_bytes() - client.counted_bytes;
    client.counted_bytes = client.num_bytes();
  }

  // Both functions return the reason why the client must be dropped if there is no memory for it, or an empty text. While the
  // store is full, only requests that store something and clients that hold much are refused.
  std::string find_room_for(const Request& request) const {
    if (!stores_something(request.query)) return {};
    size_t size = 0;
    for (const auto& key : request.keys) size += key.size();
    for (const auto& value : request.values) size += value.size();
    auto problem = find_room(size, max_bytes_);
    // Clients wait before they read. A wait for keys that exist stores nothing.
    if (!problem.empty() && request.query == Query::kWait && table_.check(request.keys)) return {};
    return problem;
  }

  // A store that is full can still be read: answers may take a quarter more.
  std::string find_room_for(const Connection& client) const {
    if (client.num_bytes() <= kSmallBytes) return {};
    return find_room(0, max_bytes_ + (client.has_answers() ? max_bytes_ / 4 : 0));
  }

  std::string find_room(size_t more, size_t limit) const {
    const size_t sum = num_client_bytes_ + table_.num_bytes() + more;
    if (sum <= limit) return {};
    return fmt::format(
        "the store may hold {} and would hold {} with this request; COHORT_STORE_MEMORY=MIB allows it more",
        base::format_bytes(limit), base::format_bytes(sum));
  }

  void refuse(uint64_t id, const std::string& problem) {
    complain(fmt::format("the store drops its client {}: {}", peer_name(clients_.at(id).socket()), problem));
    drop(id);
  }

  // Limits the lines of a client that fails again and again, so that it does not fill the log.
  void complain(const std::string& text) {
    const auto num_left_out = complaints_.num_left_out();
    if (!complaints_.may_speak(std::chrono::steady_clock::now())) return;
    base::log_warning(num_left_out ? fmt::format("{} ({} such lines were left out)", text, num_left_out) : text);
  }

  void drop(uint64_t id) {
    table_.stop_waiting(id);
    challenges_.erase(id);
    unproven_.erase(id);
    if (const auto found = clients_.find(id); found != clients_.end()) {
      num_client_bytes_ -= found->second.counted_bytes;
      clients_.erase(found);
    }
    num_clients_ = clients_.size();
  }

  // Returns the reason why the client must be dropped, or an empty text.
  std::string answer(uint64_t id, Connection& client, Request& request) {
    if (!client.is_validated()) {
      if (request.query != Query::kValidate || request.number != kMagic)
        return "it does not speak the store's protocol";
      client.set_validated();
      unproven_.erase(id);
      return {};
    }
    if (!may_use(client, request.keys))
      return fmt::format("its keys under {} need the token", std::string(kProtectedPrefix));
    std::string bytes;
    std::string problem;
    if (request.query == Query::kProve) {
      prove(id, client, request.values[0], &bytes);
    } else if (request.query == Query::kListKeys || request.query == Query::kNumKeys) {
      list_keys(client, request.query, &bytes);
    } else {
      problem = carry_out(id, request, &bytes);
    }
    client.answer(bytes);
    return problem;
  }

  // PyTorch's and our clients put a slash before their keys.
  static bool is_protected(std::string_view key) {
    return key.starts_with('/') && key.substr(1).starts_with(kProtectedPrefix);
  }

  bool sees_all(const Connection& client) const { return token_.empty() || client.is_trusted(); }

  bool may_use(const Connection& client, const std::vector<std::string>& keys) const {
    return sees_all(client) || std::none_of(keys.begin(), keys.end(), is_protected);
  }

  void list_keys(const Connection& client, Query query, std::string* bytes) const {
    if (sees_all(client) && query == Query::kNumKeys) return put_number(bytes, table_.num_keys(), 8);
    auto keys = table_.list_keys();
    if (!sees_all(client)) std::erase_if(keys, is_protected);
    if (query == Query::kNumKeys) return put_number(bytes, keys.size(), 8);
    put_texts(bytes, keys);
  }

  // Sends a challenge, which is valid for one attempt.
  void challenge(uint64_t id, std::string* bytes) {
    auto& nonce = challenges_[id] = random_nonce();
    bytes->push_back(token_.empty() ? char{0} : char{1});
    bytes->append(nonce);
  }

  void prove(uint64_t id, Connection& client, const std::string& value, std::string* bytes) {
    const auto challenge = challenges_.extract(id);
    bool is_right = !challenge.empty() && !token_.empty() && value.size() == kNonceBytes + kProofBytes;
    const auto server_nonce = is_right ? challenge.mapped() : std::string();
    const auto client_nonce = value.substr(0, kNonceBytes);
    const auto expected = proof_of(Side::kClient, token_, server_nonce, client_nonce);
    is_right = is_right && is_same_proof(std::string_view(value).substr(kNonceBytes), expected);
    bytes->push_back(is_right ? kReady : kCanceled);
    bytes->append(is_right ? proof_of(Side::kServer, token_, server_nonce, client_nonce)
                           : std::string(kProofBytes, '\0'));
    if (is_right) return client.set_trusted();
    complain(fmt::format("the store refuses its client {}: it has another token", peer_name(client.socket())));
  }

  std::string carry_out(uint64_t id, Request& request, std::string* bytes) {
    switch (request.query) {
      case Query::kValidate:
        return "it sends the protocol's greeting twice";
      case Query::kPing:
        put_number(bytes, static_cast<uint64_t>(request.number), 4);
        return {};
      case Query::kChallenge:
        challenge(id, bytes);
        return {};
      case Query::kCheck:
        bytes->push_back(table_.check(request.keys) ? kReady : char{1});
        return {};
      case Query::kWait:
        if (table_.wait(id, request.keys)) bytes->push_back(kReady);
        return {};
      case Query::kBarrier:
        return meet(id, request, bytes);
      case Query::kCancelWait:
        table_.stop_waiting(id);
        bytes->push_back(kCanceled);
        return {};
      case Query::kAdd:
        return add(request, bytes);
      case Query::kMultiGet:
        return get_all(request.keys, bytes);
      case Query::kAppend:
        return append(request.keys[0], request.values[0]);
      default:
        use_values(request, bytes);
        return {};
    }
  }

  std::string get_all(const std::vector<std::string>& keys, std::string* bytes) {
    for (const auto& key : keys) {
      put_text(bytes, value_of(key));
      if (bytes->size() > kMaxAnswerBytes)
        return fmt::format("it asks for more than {} bytes at once", kMaxAnswerBytes);
    }
    return {};
  }

  std::string append(const std::string& key, const std::string& value) {
    const auto* const before = table_.get(key);
    const auto size = value.size() + (before ? before->size() : 0);
    if (size > kMaxValueBytes)
      return fmt::format("its append makes a value of {} bytes, {} are allowed", size, kMaxValueBytes);
    table_.append(key, value);
    return {};
  }

  std::string add(const Request& request, std::string* bytes) {
    const auto sum = table_.add(request.keys[0], request.number);
    if (!sum) return sum.error().message();
    put_number(bytes, static_cast<uint64_t>(*sum), 8);
    return {};
  }

  std::string meet(uint64_t id, const Request& request, std::string* bytes) {
    const auto is_open = table_.barrier(id, request.keys[0], request.number);
    if (!is_open) return is_open.error().message();
    if (*is_open) bytes->push_back(kReady);
    return {};
  }

  std::string value_of(const std::string& key) const {
    const auto* const value = table_.get(key);
    return value ? *value : std::string();
  }

  void use_values(Request& request, std::string* bytes) {
    auto& [query, keys, values, number] = request;
    switch (query) {
      case Query::kSet:
      case Query::kMultiSet:
        for (size_t i = 0; i < keys.size(); ++i) table_.set(keys[i], std::move(values[i]));
        return;
      case Query::kCompareSet:
        return put_text(bytes, table_.compare_set(keys[0], values[0], std::move(values[1])));
      case Query::kGet:
        return put_text(bytes, value_of(keys[0]));
      case Query::kDeleteKey:
        return put_number(bytes, table_.delete_key(keys[0]) ? 1 : 0, 8);
      case Query::kQueuePush:
        return table_.queue_push(keys[0], std::move(values[0]));
      case Query::kQueuePop:
        put_number(bytes, table_.queue_len(keys[0]), 8);
        if (const auto value = table_.queue_pop(keys[0])) put_text(bytes, *value);
        return;
      case Query::kQueueLen:
        return put_number(bytes, table_.queue_len(keys[0]), 8);
      default:
        return;
    }
  }

  void say_ready(uint64_t id) {
    clients_.at(id).answer({&kReady, 1});
    touched_.push_back(id);
  }

  // Sends the answers of this round, and watches each client for what it needs next.
  void flush() {
    for (size_t i = 0; i < touched_.size(); ++i) {  // touched_ grows
      const auto id = touched_[i];
      const auto found = clients_.find(id);
      if (found == clients_.end()) continue;
      auto& client = found->second;
      const bool was_congested = client.is_congested();
      if (!client.send_answers()) {
        drop(id);
        continue;
      }
      count(client);
      if (was_congested && !client.is_congested()) {
        answer_requests(id, client);
        if (clients_.count(id) == 0) continue;
      }
      const uint32_t wanted = (client.is_congested() ? 0u : EPOLLIN) | (client.has_answers() ? EPOLLOUT : 0u);
      if (wanted == client.watched_events) continue;
      epoll_event event{wanted, {.u64 = id}};
      epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.socket(), &event);
      client.watched_events = wanted;
    }
    touched_.clear();
  }

  const std::vector<Listener> listeners_;
  const base::Fd user_query_;  ///< if empty, every user is served
  const std::string token_;
  const size_t max_bytes_;
  base::Fd epoll_;
  base::Fd stop_;
  base::Fd spare_;
  std::thread thread_;

  // The members from here on belong to the thread.
  Table table_;
  Clients clients_;
  size_t num_client_bytes_ = 0;
  uint64_t next_id_ = kFirstClient;
  std::vector<uint64_t> touched_;
  std::set<uint64_t> unproven_;  ///< clients that have not sent kValidate, oldest first
  std::unordered_map<uint64_t, std::string> challenges_;
  LogLimit complaints_;
  std::vector<char> buffer_ =
      std::vector<char>(64 * 1024);  ///< not on the stack, which may be limited to less (ulimit -s)
  std::atomic<size_t> num_clients_ = 0;
};

TcpServer::TcpServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
TcpServer::~TcpServer() = default;

base::Result<std::unique_ptr<TcpServer>> TcpServer::start(const TcpServerOptions& options) {
  allow_many_files();
  auto listeners = listen_on(options.host, options.port, options.family);
  if (!listeners) return base::Error("the store cannot start").caused_by(listeners.error());
  const auto limit = base::env_int("COHORT_STORE_MEMORY", 1);
  if (!limit) return base::Error("the store cannot start").caused_by(limit.error());
  auto user_query = open_user_query(*listeners);
  if (!user_query) return base::Error("the store cannot start").caused_by(user_query.error());
  const auto max_bytes = options.max_bytes ? options.max_bytes : static_cast<size_t>(limit->value_or(kUsualMiB)) * kMiB;
  auto loop = std::make_unique<Loop>(std::move(*listeners), std::move(*user_query), options.token, max_bytes);
  if (auto started = loop->start(); !started) return base::Error("the store cannot start").caused_by(started.error());
  return std::unique_ptr<TcpServer>(new TcpServer(std::move(loop)));
}

int TcpServer::port() const { return loop_->port(); }
size_t TcpServer::num_clients() const { return loop_->num_clients(); }

}  // namespace cohort::store
