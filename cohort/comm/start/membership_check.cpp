#include "cohort/comm/start/membership_check.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "cohort/base/log/log.h"
#include "cohort/base/net/address.h"
#include "cohort/base/net/interfaces.h"
#include "cohort/base/net/port.h"
#include "cohort/base/system/deadline.h"
#include "cohort/base/system/host.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/start/rendezvous.h"
#include "cohort/comm/watch/peers.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/job/arrival.h"
#include "cohort/job/network.h"
#include "cohort/job/shared_memory_probe.h"
#include "cohort/job/shm_choice.h"
#include "cohort/shm/engine/group.h"

namespace cohort::comm {
namespace {

using job::gloo_key;
using Clock = std::chrono::steady_clock;
using Kind = Failure::Kind;
using std::chrono::milliseconds;

constexpr milliseconds kPollInterval{5};
constexpr milliseconds kFirstWarning{10'000};
// The time after the timeout at which another thread gives up: c10d waits without limit for a store that is stopped.
constexpr milliseconds kStuckGrace{3'000};
// The time that rank 0, whose process hosts the store, stays so that the others can read why the start failed.
constexpr milliseconds kStoreGrace{2'000};
// The time that the process of rank 0 may take to end after its connections have broken.
constexpr milliseconds kTimeToEnd{300};
constexpr const char* kErrorKey = "cohort/start/error";

std::string entry_key(int rank) { return "cohort/start/" + std::to_string(rank); }
// The key contains the pid because two processes may have one rank.
std::string read_key(int rank, int pid) { return fmt::format("cohort/start/read/{}/{}", rank, pid); }

// Grows with the number of ranks, because all of them ask one server.
milliseconds poll_interval(int world_size) {
  return std::clamp(milliseconds(world_size / 10), kPollInterval, milliseconds(100));
}
milliseconds full_scan_interval(int world_size) {
  return std::clamp(milliseconds(10 * world_size), milliseconds(100), milliseconds(10'000));
}

// Returns an empty value if the key does not exist. A rank that leaves empties its entry instead of deleting it: if the key were
// deleted between the two calls here, get() would wait for it.
std::vector<uint8_t> read_now(c10d::Store& store, const std::string& key) {
  return store.check({key}) ? store.get(key) : std::vector<uint8_t>{};
}

Failure start_failure(Kind kind, std::string what, std::string hint = {}) {
  return {.kind = kind, .hint = std::move(hint), .what = std::move(what), .scope = Failure::Scope::kJob};
}

// The last failure that this process has reported or read, as text in the store. The same text again is an old failure.
class LastFailure {
 public:
  bool is(const std::string& value) {
    const std::lock_guard lock(mutex_);
    return value == value_;
  }
  void set(const std::string& value) {
    const std::lock_guard lock(mutex_);
    value_ = value;
  }

 private:
  std::mutex mutex_;
  std::string value_;
};

LastFailure& last_failure() {
  static auto* const value = new LastFailure;
  return *value;
}

// Writes a line that identifies the sender, then the failure, unless there is one already.
void post_failure(c10d::Store& store, const job::Peer& self, const Failure& failure) {
  static std::atomic<int> count{0};
  const auto value = fmt::format("{} {} {}\n{}", self.pid, self.started_at, ++count, encode_failure(failure));
  store.compareSet(kErrorKey, {}, base::to_bytes(value));
}

std::string describe_python(const std::optional<job::GlooEntry>& entry) {
  if (!entry) return "a Python process";
  const auto use = base::look_up_port(entry->port);
  const bool is_here =
      entry->host == base::host_name() && base::is_own_address(entry->address, base::list_interfaces());
  if (is_here && use.holder) return fmt::format("pid {} on {}", use.holder->pid, entry->host);
  return "a Python process on " + entry->host;
}

class MembershipChecker {
 public:
  explicit MembershipChecker(MembershipCheck check)
      : check_(std::move(check)), store_(check_.store), deadline_(base::deadline_after(check_.timeout, begin_)) {
    self_ = job::this_process();
    self_.world_size = check_.world_size;
    self_.accelerator = check_.accelerator;
    self_.shm_obstacle = job::find_shm_obstacle();
    if (self_.shm_obstacle.empty()) self_.shm_scope = shm::host_scope();
  }

  std::vector<job::Arrival> run() {
    try {
      if (auto failure = enter()) fail(*failure);
      wait();
      return arrivals();
    } catch (const c10::DistNetworkError& error) {
      lost_store(error);
    }
  }

  /// Returns the failure if run() does not return; for another thread.
  Failure stuck() const {
    auto failure = start_failure(
        Kind::kTimeout,
        fmt::format("init_process_group failed: {} gets no answer from the store at {}", self_in_words(), place()),
        "the process that hosts it is stopped or its host is lost; look at rank 0, or at the launcher");
    failure.causes = {fmt::format("no answer within the timeout of {}, nor a few seconds after it",
                                  base::format_duration(check_.timeout))};
    return failure;
  }

 private:
  std::string self_in_words() const { return fmt::format("rank {} ({})", check_.rank, describe_process(self_)); }
  std::string place() const {
    if (!check_.plan) return "the store it was given";
    return check_.plan->kind == RendezvousPlan::Kind::kFile ? check_.plan->path
                                                            : base::host_and_port(check_.plan->host, check_.plan->port);
  }
  bool is_file() const { return check_.plan && check_.plan->kind == RendezvousPlan::Kind::kFile; }
  bool hosts_store() const { return check_.plan && !is_file() && check_.plan->hosts_store; }

  Failure stale_file(const std::string& cause) const {
    auto failure = start_failure(Kind::kEngine, fmt::format("the file store {} is left over from another run", place()),
                                 fmt::format("delete {}, or give each run a path of its own", place()));
    failure.causes = {cause};
    return failure;
  }
  Failure duplicate(const std::string& first) const {
    return job::duplicate_rank(check_.rank, first, describe_process(self_));
  }

  std::optional<Failure> find_addresses() {
    const auto addresses = job::gloo_addresses();
    if (!addresses) {
      return start_failure(Kind::kArgument,
                           fmt::format("{} cannot start: {}", self_in_words(), addresses.error().describe()));
    }
    self_.addresses = *addresses;
    if (std::any_of(addresses->begin(), addresses->end(), base::is_loopback)) {
      self_.interfaces = base::describe_reachable_interfaces(base::list_interfaces());
    }
    return std::nullopt;
  }

  // Writes this process's entry. Returns a failure if it may not start.
  std::optional<Failure> enter() {
    if (auto failure = check_.uses_gloo ? find_addresses() : std::nullopt) return failure;
    if (auto failure = reported_failure(); failure && is_file()) {
      return stale_file("a start that failed there: " + base::first_line(failure_text(*failure)));
    }
    self_.start_count = 1;
    auto entry = read_now(*store_, entry_key(check_.rank));
    if (entry.empty()) {
      const auto mine = base::to_bytes(encode(self_));
      entry = store_->compareSet(entry_key(check_.rank), {}, mine);
      if (entry == mine) return look_for_python_twin();
    }
    const auto there = job::decode_peer(entry);
    if (job::is_same_process(there, self_)) return enter_again(there);
    if (!job::is_seen_gone(there)) return duplicate(describe_process(there));
    const auto cause = fmt::format("rank {} of it, {}, has ended", check_.rank, describe_process(there));
    if (is_file()) return stale_file(cause);
    return start_failure(
        Kind::kLostRank,
        fmt::format("{} arrives too late: this rank was {}, which has ended", self_in_words(), describe_process(there)),
        "start all ranks again");
  }

  // For a process that has created a default group with this store before.
  std::optional<Failure> enter_again(const job::Peer& before) {
    self_.start_count = before.start_count + 1;
    if (!check_.is_among_own_kind) store_->deleteKey(gloo_key(check_.rank));
    store_->set(entry_key(check_.rank), base::to_bytes(encode(self_)));
    has_entry_ = true;
    return std::nullopt;
  }

  auto python_twin() const { return job::decode_gloo_entry(store_->get(gloo_key(check_.rank))); }
  bool has_gloo_key(int rank) const { return !check_.is_among_own_kind && store_->check({gloo_key(rank)}); }

  std::optional<Failure> look_for_python_twin() {
    has_entry_ = true;
    if (!has_gloo_key(check_.rank)) return std::nullopt;
    const auto twin = python_twin();
    if (is_file() && (!twin || is_seen_gone(*twin))) {
      return stale_file(
          fmt::format("rank {} of it, a Python process{}, has ended", check_.rank, twin ? " on " + twin->host : ""));
    }
    return duplicate(describe_python(twin));
  }

  // A Python process listens at its address as long as it lives.
  static bool is_seen_gone(const job::GlooEntry& entry) {
    return entry.host == base::host_name() && base::is_own_address(entry.address, base::list_interfaces()) &&
           !base::look_up_port(entry.port).is_listened_on;
  }
  static bool is_seen_gone(const job::Arrival& arrival) {
    return arrival.peer ? job::is_seen_gone(*arrival.peer) : arrival.gloo && is_seen_gone(*arrival.gloo);
  }

  void look_for(int rank) {
    if (arrivals_.contains(rank)) return;
    job::Arrival arrival{.rank = rank, .peer = {}, .gloo = {}};
    if (const auto entry = read_now(*store_, entry_key(rank)); !entry.empty()) {
      arrival.peer = job::decode_peer(entry);
      // Ignores an entry from the previous group.
      if (arrival.peer->start_count < self_.start_count) {
        if (rank == 0) host_before_ = std::move(arrival);
        return;
      }
    } else if (has_gloo_key(rank)) {
      // A C++ rank writes this key, too, but after its entry.
      if (!read_now(*store_, entry_key(rank)).empty()) return;
      arrival.gloo = job::decode_gloo_entry(store_->get(gloo_key(rank)));
    } else {
      return;
    }
    arrivals_[rank] = std::move(arrival);
  }

  void look_for_all() {
    for (int rank = 0; rank < check_.world_size; ++rank) look_for(rank);
    last_full_scan_ = Clock::now();
  }

  bool is_complete() const { return static_cast<int>(arrivals_.size()) == check_.world_size; }

  std::vector<job::Arrival> arrivals() const {
    std::vector<job::Arrival> list;
    for (const auto& entry : arrivals_) list.push_back(entry.second);
    return list;
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < check_.world_size; ++rank) {
      if (!arrivals_.contains(rank)) ranks.push_back(rank);
    }
    return ranks;
  }

  std::optional<Failure> shm_conflict() const {
    if (!check_.needs_shared_memory) return std::nullopt;
    const auto obstacles = obstacles_to_shm(arrivals());
    return obstacles.empty() ? std::nullopt : std::optional(job::shm_refusal(check_.group, obstacles));
  }

  // Raises a failure only after a look at all ranks: a rank that has seen all of them goes on, so all others must as well.
  void wait() {
    look_for_all();
    while (true) {
      if (auto conflict = find_conflict(arrivals())) fail(*conflict);
      if (auto conflict = shm_conflict()) fail(*conflict);
      if (is_complete()) {
        if (auto gone = is_file() ? gone_rank() : std::nullopt) fail(*gone);
        return;
      }
      std::this_thread::sleep_for(poll_interval(check_.world_size));
      const auto now = Clock::now();
      if (now - last_full_scan_ < full_scan_interval(check_.world_size) && now < deadline_) {
        look_for(missing().front());
        if (!store_->check({kErrorKey})) continue;
      }
      const auto failure = current_failure(now);
      look_for_all();
      if (failure && !is_complete()) fail(*failure);
    }
  }

  std::optional<Failure> current_failure(Clock::time_point now) {
    if (auto failure = reported_failure()) return failure;
    if (auto gone = gone_rank()) return gone;
    if (has_entry_ && self_.start_count == 1 && has_gloo_key(check_.rank))
      return duplicate(describe_python(python_twin()));
    if (now >= deadline_) return timed_out();
    if (now - begin_ > kFirstWarning && !has_warned_) {
      has_warned_ = true;
      base::log_warning(fmt::format("{} waits for {} at {}, for {} more", self_in_words(),
                                    base::ranks_in_words(missing()), place(), base::format_duration(deadline_ - now)));
    }
    return std::nullopt;
  }

  std::optional<Failure> gone_rank() const {
    const auto found =
        std::find_if(arrivals_.begin(), arrivals_.end(), [](const auto& each) { return is_seen_gone(each.second); });
    if (found == arrivals_.end()) return std::nullopt;
    auto hint = fmt::format("look at the output of rank {} for the reason", found->first);
    if (is_file()) hint += fmt::format("; if that rank is from another run, {} is a leftover: delete it", place());
    auto failure =
        start_failure(Kind::kLostRank,
                      fmt::format("init_process_group failed: {} arrived but has ended since", describe(found->second)),
                      std::move(hint));
    failure.note = still_missing();
    return failure;
  }

  std::string still_missing() const { return is_complete() ? "" : "still missing: " + base::ranks_in_words(missing()); }

  Failure timed_out() const {
    const auto names = base::ranks_in_words(missing());
    auto failure = start_failure(
        Kind::kTimeout, fmt::format("init_process_group timed out: {} never arrived", names),
        fmt::format("see whether {} started, and with the same meeting place; if so, raise InitOptions::timeout",
                    names));
    failure.where = {fmt::format("{} waited {} at {}{}", self_in_words(), base::format_duration(check_.timeout),
                                 place(), hosts_store() ? ", which it hosts" : ""),
                     "arrived: " + describe(arrivals())};
    // PyTorch's words, which scripts search for.
    failure.causes = {fmt::format("Timed out after {} seconds waiting for clients. {}/{} clients joined.",
                                  std::chrono::ceil<std::chrono::seconds>(check_.timeout).count(), arrivals_.size(),
                                  check_.world_size)};
    auto note = hosts_store() ? unreachable_master_note(*check_.plan) : "";
    if (!note.empty()) failure.causes.push_back(std::move(note));
    return failure;
  }

  std::optional<Failure> reported_failure() {
    const auto bytes = read_now(*store_, kErrorKey);
    const std::string value(bytes.begin(), bytes.end());
    const auto line = value.find('\n');
    if (line == std::string::npos || value.size() < line + 2) return std::nullopt;
    if (last_failure().is(value)) {
      // The failure ended an earlier start of this process, which now tries again.
      store_->set(kErrorKey, std::vector<uint8_t>{});
      return std::nullopt;
    }
    seen_value_ = value;
    return decode_failure(value.substr(line + 1));
  }

  // Throws the first failure. Tells the others before, and waits for them if they need this process's store.
  [[noreturn]] void fail(Failure failure) {
    try {
      if (seen_value_.empty()) {
        post_failure(*store_, self_, failure);
        if (auto first = reported_failure()) failure = *first;
      }
      last_failure().set(seen_value_);
      store_->set(read_key(check_.rank, self_.pid), std::vector<uint8_t>{1});
      if (hosts_store()) wait_for_readers(failure.kind == Kind::kArgument);
      if (has_entry_) withdraw_membership(store_, check_.rank);
    } catch (const std::exception&) {
      base::log_debug("the store has ended: nobody is left to tell why the start has failed");
    }
    throw_failure(failure);
  }

  // Also waits for late ranks, which then read why the start has failed.
  void wait_for_readers(bool for_late_ranks) {
    const auto end = Clock::now() + kStoreGrace;
    for (int rank = 0; rank < check_.world_size; ++rank) {
      while (rank != check_.rank && Clock::now() < end) {
        look_for(rank);
        const auto arrival = arrivals_.find(rank);
        if (arrival == arrivals_.end() ? !for_late_ranks : has_read(arrival->second)) break;
        std::this_thread::sleep_for(kPollInterval);
      }
    }
  }

  bool has_read(const job::Arrival& arrival) const {
    return !arrival.peer || is_seen_gone(arrival) || store_->check({read_key(arrival.rank, arrival.peer->pid)});
  }

  // Returns rank 0's arrival in this group, otherwise in the previous one.
  std::optional<job::Arrival> host() const {
    const auto found = arrivals_.find(0);
    return found != arrivals_.end() ? found->second : host_before_;
  }
  bool is_host_seen_gone() const {
    const auto rank_0 = host();
    return rank_0 && is_seen_gone(*rank_0);
  }
  bool is_host_soon_seen_gone() const {
    const auto end = Clock::now() + kTimeToEnd;
    while (!is_host_seen_gone()) {
      if (Clock::now() >= end) return false;
      std::this_thread::sleep_for(kPollInterval);
    }
    return true;
  }

  [[noreturn]] void lost_store(const c10::DistNetworkError& error) const {
    if (check_.is_met_again && !is_host_soon_seen_gone()) throw EarlierStoreEnded();
    auto failure = start_failure(
        Kind::kLostRank, fmt::format("init_process_group failed: {} lost the store at {}", self_in_words(), place()),
        "the process that hosts the store ended; look at the output of rank 0, or of the launcher");
    failure.note = still_missing();
    if (is_host_seen_gone()) failure.causes.push_back(describe(*host()) + " has ended");
    failure.causes.push_back(base::first_line(error.what_without_backtrace()));
    throw_failure(failure);
  }

  const MembershipCheck check_;
  const c10::intrusive_ptr<c10d::Store>& store_;  // check_.store
  const Clock::time_point begin_ = Clock::now();
  const Clock::time_point deadline_;
  Clock::time_point last_full_scan_ = begin_;
  job::Peer self_;
  std::map<int, job::Arrival> arrivals_;
  std::optional<job::Arrival> host_before_;
  bool has_entry_ = false;
  bool has_warned_ = false;
  std::string seen_value_;
};

}  // namespace

std::vector<job::Arrival> check_membership(const MembershipCheck& check) {
  const auto checker = std::make_shared<MembershipChecker>(check);
  std::packaged_task<std::vector<job::Arrival>()> task([checker] { return checker->run(); });
  auto done = task.get_future();
  std::thread thread(std::move(task));
  if (done.wait_until(base::deadline_after(check.timeout) + kStuckGrace) != std::future_status::ready) {
    thread.detach();  // owns everything that it uses
    throw_failure(checker->stuck());
  }
  thread.join();
  return done.get();
}

std::optional<Failure> refuse_second_host(const c10::intrusive_ptr<c10d::Store>& store) {
  const auto end = Clock::now() + std::chrono::seconds(1);
  const auto self = job::this_process();
  std::string first;
  while (first.empty() && Clock::now() < end) {
    if (const auto peer = read_now(*store, entry_key(0)); !peer.empty()) {
      first = describe_process(job::decode_peer(peer));
    } else if (store->check({gloo_key(0)})) {
      first = describe_python(job::decode_gloo_entry(store->get(gloo_key(0))));
    } else {
      std::this_thread::sleep_for(kPollInterval);
    }
  }
  if (first.empty()) return std::nullopt;
  auto failure = job::duplicate_rank(0, first, describe_process(self));
  post_failure(*store, self, failure);
  return failure;
}

void withdraw_membership(const c10::intrusive_ptr<c10d::Store>& store, int rank) {
  try {
    store->set(entry_key(rank), std::vector<uint8_t>{});
  } catch (const std::exception&) {
    return;  // the store has ended, and the entry with it
  }
}

}  // namespace cohort::comm
