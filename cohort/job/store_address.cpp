#include "cohort/job/store_address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/job/peer.h"

namespace cohort::job {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A store answers from a thread of its own, within milliseconds even while its program computes.
constexpr milliseconds kAnswerLimit{15'000};
// An earlier run's server that is just ending closes connections too.
constexpr milliseconds kClosedLimit{5'000};
constexpr milliseconds kConnectLimit{10'000};
constexpr milliseconds kConnectLimitOfSeveral{2'000};
constexpr milliseconds kLongestPause{250};
constexpr milliseconds kFirstWarning{10'000};

enum class Outcome { kAnswered, kNoConnection, kNoReply, kClosed, kSilent, kForeign };

struct Answer {
  Outcome outcome = Outcome::kNoConnection;
  std::string text;
};

struct Record {
  Answer last;
  int attempts = 0;
  std::optional<Clock::time_point> closed_since;
};

// "validate", then "ping" with a number that the server sends back: what c10d's client itself opens a connection with.
constexpr uint32_t kNonce = 0x63686f72;
std::array<uint8_t, 10> greeting() {
  constexpr uint8_t kValidate = 0;
  constexpr uint8_t kPing = 13;
  constexpr uint32_t kMagic = 0x3C85F7CE;
  std::array<uint8_t, 10> bytes{};
  bytes[0] = kValidate;
  std::memcpy(&bytes[1], &kMagic, 4);
  bytes[5] = kPing;
  std::memcpy(&bytes[6], &kNonce, 4);
  return bytes;
}

int milliseconds_until(Clock::time_point deadline) {
  return static_cast<int>(std::max<int64_t>(0, std::chrono::ceil<milliseconds>(deadline - Clock::now()).count()));
}

bool wait_for(int fd, short events, Clock::time_point deadline) {
  pollfd entry{fd, events, 0};
  int ready = 0;
  do {
    ready = ::poll(&entry, 1, milliseconds_until(deadline));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

std::string quoted(const std::string& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text = "\"";
  for (const unsigned char byte : bytes) {
    text += byte >= 32 && byte < 127 ? std::string(1, static_cast<char>(byte))
                                     : std::string("\\x") + kDigits[byte / 16] + kDigits[byte % 16];
  }
  return text + "\"";
}

Answer no_connection(int error) {
  const bool is_no_reply = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
  return {is_no_reply ? Outcome::kNoReply : Outcome::kNoConnection, base::errno_text(error)};
}

std::optional<Answer> connect_to(int fd, const addrinfo& target, Clock::time_point deadline) {
  const auto begin = Clock::now();
  if (::connect(fd, target.ai_addr, target.ai_addrlen) == 0) return std::nullopt;
  if (errno != EINPROGRESS) return no_connection(errno);
  if (!wait_for(fd, POLLOUT, deadline)) {
    return Answer{Outcome::kNoReply,
                  "no reply to a connection attempt of " + base::format_duration(Clock::now() - begin)};
  }
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? std::nullopt : std::optional(no_connection(error));
}

Answer read_answer(int fd, Clock::time_point deadline) {
  const auto begin = Clock::now();
  std::string received;
  std::array<char, 4> wanted{};
  std::memcpy(wanted.data(), &kNonce, 4);
  while (received.size() < wanted.size()) {
    if (!wait_for(fd, POLLIN, deadline)) {
      return {Outcome::kSilent,
              "accepted the connection but gave no answer within " + base::format_duration(Clock::now() - begin)};
    }
    std::array<char, 64> buffer{};
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0 && received.empty())
      return {Outcome::kClosed, "accepted the connection and closed it without an answer"};
    if (count <= 0) break;
    received.append(buffer.data(), static_cast<size_t>(count));
    if (std::memcmp(received.data(), wanted.data(), std::min(received.size(), wanted.size())) != 0) break;
  }
  if (received == std::string(wanted.data(), wanted.size())) return {Outcome::kAnswered, {}};
  return {Outcome::kForeign, "answered " + quoted(received.substr(0, 40)) + ", which no c10d store does"};
}

Answer ask(const std::string& address, uint16_t port, milliseconds connect_limit, Clock::time_point deadline) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* target = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &target) != 0) {
    return {Outcome::kNoConnection, "is not an address of this host's network"};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(target, freeaddrinfo);
  const base::Fd socket(::socket(target->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return no_connection(errno);
  if (auto failure = connect_to(socket.get(), *target, std::min(deadline, Clock::now() + connect_limit)))
    return *failure;
  const auto bytes = greeting();
  if (::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) {
    return {Outcome::kClosed, "accepted the connection and closed it without an answer"};
  }
  return read_answer(socket.get(), std::min(deadline, Clock::now() + kAnswerLimit));
}

class Search {
 public:
  explicit Search(const StoreSearch& search) : search_(search), deadline_(begin_ + search.timeout) {}

  base::Result<std::string> run() {
    milliseconds pause{10};
    while (true) {
      const auto addresses = resolve(search_.host, search_.family);
      ++rounds_;
      resolve_error_ = addresses ? "" : addresses.error().message();
      if (!addresses && lacks_family(search_.host, search_.family)) return failure();
      for (const auto& address : addresses ? *addresses : std::vector<std::string>{}) {
        const auto limit = addresses->size() > 1 ? kConnectLimitOfSeveral : kConnectLimit;
        if (note(address, ask(address, search_.port, limit, deadline_))) return address;
        if (is_hopeless(records_[address])) return failure();
      }
      if (Clock::now() + pause >= deadline_) {
        std::this_thread::sleep_until(deadline_);
        return failure();
      }
      warn_once_in_a_while();
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, kLongestPause);
    }
  }

 private:
  bool note(const std::string& address, Answer answer) {
    if (records_.find(address) == records_.end()) order_.push_back(address);
    auto& record = records_[address];
    ++record.attempts;
    if (answer.outcome != Outcome::kClosed) record.closed_since.reset();
    if (answer.outcome == Outcome::kClosed && !record.closed_since) record.closed_since = Clock::now();
    record.last = std::move(answer);
    return record.last.outcome == Outcome::kAnswered;
  }

  static bool is_hopeless(const Record& record) {
    const auto outcome = record.last.outcome;
    return outcome == Outcome::kForeign || outcome == Outcome::kSilent ||
           (outcome == Outcome::kClosed && Clock::now() - *record.closed_since > kClosedLimit);
  }

  std::vector<std::string> causes() const {
    const auto elapsed = base::format_duration(Clock::now() - begin_);
    std::vector<std::string> lines;
    for (const auto& address : order_) {
      const auto& record = records_.at(address);
      lines.push_back(base::fill_in("{} ({}): {}; {} attempt{} in {}", address, family_of(address), record.last.text,
                                    record.attempts, record.attempts == 1 ? "" : "s", elapsed));
    }
    if (!resolve_error_.empty()) {
      lines.push_back(
          base::fill_in("{}; {} attempt{} in {}", resolve_error_, rounds_, rounds_ == 1 ? "" : "s", elapsed));
    }
    return lines;
  }

  bool has(Outcome outcome) const {
    return std::any_of(records_.begin(), records_.end(),
                       [&](const auto& entry) { return entry.second.last.outcome == outcome; });
  }

  std::string hint() const {
    if (has(Outcome::kForeign) || has(Outcome::kSilent) || has(Outcome::kClosed)) {
      return "another program uses this port; choose another one for " + search_.source + ", the same on every rank";
    }
    if (has(Outcome::kNoReply)) {
      return "no host or a firewall is there; see whether this host can reach that address at all, and whether " +
             search_.source + " name rank 0's host";
    }
    if (order_.empty() && lacks_family(search_.host, search_.family)) {
      return "unset COHORT_IP_FAMILY, or give an address of that family in " + search_.source;
    }
    if (order_.empty()) {
      return "give a name that this host can resolve, or a numeric address, in " + search_.source;
    }
    return "nothing listens there: see whether rank 0 runs on that host and whether all ranks have the same " +
           search_.source + "; if rank 0 only comes later, raise InitOptions::timeout";
  }

  base::Error failure() const {
    auto text = base::fill_in("[cohort] {} on {} cannot reach the store at {}:{}", search_.who, host_name(),
                              search_.host, search_.port);
    for (const auto& cause : causes()) text += "\n  caused by: " + cause;
    return base::Error(text + "\n  hint: " + hint());
  }

  void warn_once_in_a_while() {
    if (has_warned_ || Clock::now() - begin_ < kFirstWarning) return;
    has_warned_ = true;
    base::log_warning(base::fill_in("{} has not reached the store at {}:{} yet and goes on for {}: {}", search_.who,
                                    search_.host, search_.port, base::format_duration(deadline_ - Clock::now()),
                                    base::join(causes(), "; ")));
  }

  const StoreSearch& search_;
  const Clock::time_point begin_ = Clock::now();
  const Clock::time_point deadline_;
  std::vector<std::string> order_;
  std::map<std::string, Record> records_;
  std::string resolve_error_;
  int rounds_ = 0;
  bool has_warned_ = false;
};

}  // namespace

base::Result<std::string> find_store(const StoreSearch& search) { return Search(search).run(); }

}  // namespace cohort::job
