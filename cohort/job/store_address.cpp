#include "cohort/job/store_address.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "cohort/base/log/log.h"
#include "cohort/base/system/deadline.h"
#include "cohort/base/system/host.h"
#include "cohort/base/text/text.h"
#include "cohort/store/stream/socket.h"
#include "cohort/store/tcp/protocol.h"

namespace cohort::job {
namespace {

using base::IpFamily;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A store answers from its own thread, within milliseconds even while its program computes.
constexpr milliseconds kAnswerLimit{15'000};
// The server of an earlier run that is just ending closes connections, too.
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

// The number in the greeting.
constexpr uint32_t kEchoed = 0x63686f72;

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

Answer read_answer(int fd, Clock::time_point deadline) {
  const auto begin = Clock::now();
  std::string received, wanted;
  store::put_number(&wanted, kEchoed, sizeof kEchoed);
  while (received.size() < wanted.size()) {
    if (!store::wait_for(fd, POLLIN, deadline)) {
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
    if (!wanted.starts_with(received)) break;
  }
  if (received == wanted) return {Outcome::kAnswered, {}};
  return {Outcome::kForeign, "answered " + quoted(received.substr(0, 40)) + ", so it is not a c10d store"};
}

Answer ask(const std::string& address, uint16_t port, milliseconds connect_limit, Clock::time_point deadline) {
  const auto target = base::look_up(address.c_str(), port, IpFamily::kAny, AI_NUMERICHOST);
  if (!target) return {Outcome::kNoConnection, "is not an address of this host's network"};
  const auto begin = Clock::now();
  const auto end = std::min(deadline, begin + connect_limit);
  const auto [socket, error] = store::connect_once(**target, end);
  if (!socket && error == ETIMEDOUT && Clock::now() >= end) {
    return {Outcome::kNoReply, "no reply to a connection attempt of " + base::format_duration(Clock::now() - begin)};
  }
  if (!socket) return no_connection(error);
  const auto bytes = store::greeting(kEchoed);
  if (::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) {
    return {Outcome::kClosed, "accepted the connection and closed it without an answer"};
  }
  return read_answer(socket.get(), std::min(deadline, Clock::now() + kAnswerLimit));
}

class Search {
 public:
  explicit Search(const StoreSearch& search)
      : search_(search), deadline_(base::deadline_after(search.timeout, begin_)) {}

  base::Result<std::string> run() {
    milliseconds pause{10};
    while (true) {
      const auto addresses = base::resolve(search_.host, search_.family);
      ++rounds_;
      resolve_error_ = addresses ? "" : addresses.error().message();
      if (!addresses && base::lacks_family(search_.host, search_.family)) return failure();
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
      lines.push_back(fmt::format("{} ({}): {}; {} attempt{} in {}", address, base::family_of(address),
                                  record.last.text, record.attempts, record.attempts == 1 ? "" : "s", elapsed));
    }
    if (!resolve_error_.empty()) {
      lines.push_back(fmt::format("{}; {} attempt{} in {}", resolve_error_, rounds_, rounds_ == 1 ? "" : "s", elapsed));
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
      return "no host has this address, or a firewall is in the way; see whether this host can reach that address at "
             "all, and whether " +
             search_.source + " name rank 0's host";
    }
    if (order_.empty() && base::lacks_family(search_.host, search_.family)) {
      return "unset COHORT_IP_FAMILY, or give an address of that family in " + search_.source;
    }
    if (order_.empty()) {
      return "give a name that this host can resolve, or a numeric address, in " + search_.source;
    }
    return "nothing listens there: see whether rank 0 runs on that host and whether all ranks have the same " +
           search_.source + "; if rank 0 only comes later, raise InitOptions::timeout";
  }

  base::Error failure() const {
    auto text = fmt::format("{} on {} cannot reach the store at {}", search_.who, base::host_name(),
                            base::host_and_port(search_.host, search_.port));
    for (const auto& cause : causes()) text += "\n  caused by: " + cause;
    return base::Error(text + "\n  hint: " + hint());
  }

  void warn_once_in_a_while() {
    if (has_warned_ || Clock::now() - begin_ < kFirstWarning) return;
    has_warned_ = true;
    base::log_warning(fmt::format("{} has not reached the store at {} yet and goes on for {}: {}", search_.who,
                                  base::host_and_port(search_.host, search_.port),
                                  base::format_duration(deadline_ - Clock::now()), base::join(causes(), "; ")));
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
