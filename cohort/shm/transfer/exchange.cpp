#include "cohort/shm/transfer/exchange.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "cohort/base/system/deadline.h"
#include "cohort/shm/transfer/bell.h"
#include "cohort/shm/transfer/channel.h"
#include "cohort/shm/transfer/traffic.h"
#include "cohort/shm/transfer/transfer.h"

namespace cohort::shm {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = PendingTransfer::Kind;
using std::chrono::milliseconds;

constexpr milliseconds kSlice{50};
constexpr milliseconds kObstacleInterval{250};
/// The time without a waiting thread after which the helper thread takes over.
constexpr milliseconds kGrace{1};
/// The time without new transfers after which the helper thread no longer checks every millisecond.
constexpr milliseconds kQuiet{100};

/// Traffic shared by the threads of a rank: waiting threads advance it, else a helper thread does.
class SharedExchange final : public Exchange {
 public:
  explicit SharedExchange(const ExchangeOptions& options);
  ~SharedExchange() override;

  TransferPtr send(const void* data, Elements elements, int destination, int tag, const CallOptions& options) override;
  TransferPtr receive(void* data, Elements elements, int source, int tag, const CallOptions& options) override;
  bool wait(const TransferPtr& transfer, std::optional<milliseconds> limit) override;
  bool wait_for_sends(milliseconds limit) override;
  void interrupt() override;

 private:
  TransferPtr post(Kind kind, void* data, Elements elements, int peer, int tag, const CallOptions& options);
  void call_helper();
  template <class IsOver>
  void drive(const IsOver& is_over, PendingTransfer* target, std::optional<Clock::time_point> limit);
  template <class IsOver>
  void sleep(const IsOver& is_over, std::optional<Clock::time_point> limit);
  bool step();
  void look_after();
  void ask_for_obstacle(PendingTransfer& target, std::optional<Clock::time_point>& next);
  void help();
  bool is_quiet() const;
  bool is_idle();

  const Patience patience_;
  Bell& bell_;

  std::mutex mutex_;  ///< guards the next six members
  Traffic traffic_;
  Clock::time_point last_look_;
  Clock::time_point last_post_;  ///< when a transfer was last left to the helper
  bool is_helper_idle_ = false;
  std::thread helper_;
  std::condition_variable helper_call_;

  // The sleeper's half of the protocol with ring() holds for these, too: they are stored before ringing, and checked after
  // begin_sleep(), all sequentially consistent.
  std::atomic<bool> is_ending_ = false;  ///< paired with: the helper
  std::atomic<bool> should_look_ =
      false;  ///< set by interrupt(); paired with: the next thread that checks, which resets it
  /// The number of threads in wait(). Paired with: the helper, which stays out of their way; seeing a change late does no harm.
  std::atomic<int> num_waiters_ = 0;
};

SharedExchange::SharedExchange(const ExchangeOptions& options)
    : patience_(options.patience),
      bell_(*reinterpret_cast<Bell*>(options.channel(options.rank, options.rank))),
      traffic_(options),
      last_look_(Clock::now()) {}

SharedExchange::~SharedExchange() {
  is_ending_.store(true);
  bell_.ring();
  {
    const std::lock_guard lock(mutex_);
    traffic_.fail_all(fail({Failure::Kind::kAborted, {"the group was destroyed before the transfer was done"}, ""}));
    helper_call_.notify_all();
  }
  if (helper_.joinable()) helper_.join();
}

void SharedExchange::interrupt() {
  should_look_.store(true);
  bell_.ring();
}

TransferPtr SharedExchange::send(const void* data, Elements elements, int destination, int tag,
                                 const CallOptions& options) {
  return post(Kind::kSend, const_cast<void*>(data), elements, destination, tag, options);
}

TransferPtr SharedExchange::receive(void* data, Elements elements, int source, int tag, const CallOptions& options) {
  return post(Kind::kReceive, data, elements, source, tag, options);
}

TransferPtr SharedExchange::post(Kind kind, void* data, Elements elements, int peer, int tag,
                                 const CallOptions& options) {
  const std::lock_guard lock(mutex_);
  auto transfer = traffic_.post(kind, data, elements, peer, tag, options);
  if (!transfer->is_done()) call_helper();
  return transfer;
}

// Called when a transfer was left without a waiting thread. The helper checks soon, unless it sleeps, and takes over if nobody
// waits by then.
void SharedExchange::call_helper() {
  last_post_ = Clock::now();
  if (!helper_.joinable()) helper_ = std::thread([this] { help(); });
  if (is_helper_idle_) helper_call_.notify_one();
}

bool SharedExchange::wait(const TransferPtr& transfer, std::optional<milliseconds> limit) {
  if (transfer->is_done()) return true;
  auto* const target = static_cast<PendingTransfer*>(transfer.get());
  std::optional<Clock::time_point> end;
  if (limit) end = base::deadline_after(*limit);
  num_waiters_.fetch_add(1);
  drive([&] { return target->is_done() || (end && Clock::now() >= *end); }, target, end);
  num_waiters_.fetch_sub(1);
  const std::lock_guard lock(mutex_);
  if (traffic_.num_pending() > 0) call_helper();
  return target->is_done();
}

bool SharedExchange::wait_for_sends(milliseconds limit) {
  const auto end = base::deadline_after(limit);
  const auto has_sends = [this] {
    const std::lock_guard lock(mutex_);
    return traffic_.has_sends();
  };
  num_waiters_.fetch_add(1);
  drive([&] { return !has_sends() || Clock::now() >= end; }, nullptr, end);
  num_waiters_.fetch_sub(1);
  return !has_sends();
}

// Spins, yields, sleeps, and starts over whenever a transfer has advanced.
template <class IsOver>
void SharedExchange::drive(const IsOver& is_over, PendingTransfer* target, std::optional<Clock::time_point> limit) {
  constexpr int kStepsPerLook = 4096;
  int pauses_left = patience_.num_pauses;
  Clock::time_point yields_end;  // set once all pauses are over
  std::optional<Clock::time_point> next_question;
  for (int num_steps = 1; !is_over(); ++num_steps) {
    // Transfers that never pause must not keep this rank from checking its peers.
    if (num_steps % kStepsPerLook == 0) {
      num_steps = 0;
      look_after();
    }
    if (step()) {
      pauses_left = patience_.num_pauses;
    } else if (pauses_left > 0) {
      pause();
      if (--pauses_left == 0) yields_end = Clock::now() + patience_.yield_time;
    } else if (Clock::now() < yields_end) {
      sched_yield();
    } else {
      sleep(is_over, limit);
      if (target && target->find_obstacle) ask_for_obstacle(*target, next_question);
    }
  }
}

// Returns true if a transfer has advanced. Does nothing if another thread is at it.
bool SharedExchange::step() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && traffic_.progress();
}

template <class IsOver>
void SharedExchange::sleep(const IsOver& is_over, std::optional<Clock::time_point> limit) {
  const auto rings_seen = bell_.begin_sleep();
  bool has_moved = false;
  auto until = Clock::now() + kSlice;
  if (limit) until = std::min(until, *limit);
  {
    // Any later change rings the bell: peers read num_sleepers after their store; threads of this rank end transfers with the
    // lock held, either before this, so is_over() sees it, or after, so they see the sleeper.
    const std::lock_guard lock(mutex_);
    has_moved = traffic_.progress();
    until = std::min(until, traffic_.next_deadline());
  }
  if (!has_moved && !is_over() && !should_look_.load()) bell_.sleep(rings_seen, until - Clock::now());
  bell_.end_sleep();
  if (!is_over()) look_after();
}

void SharedExchange::look_after() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (should_look_.exchange(false) || now - last_look_ >= kSlice) {
    last_look_ = now;
    traffic_.look();
  }
  traffic_.end_overdue(now);
}

// Called without the lock, because the function is the caller's.
void SharedExchange::ask_for_obstacle(PendingTransfer& target, std::optional<Clock::time_point>& next) {
  const auto now = Clock::now();
  const bool is_due = next && now >= *next;
  if (!next || is_due) next = now + kObstacleInterval;
  if (!is_due) return;
  auto obstacle = target.find_obstacle();
  if (obstacle.empty()) return;
  const std::lock_guard lock(mutex_);
  traffic_.progress();
  if (!target.is_done()) traffic_.fail(target, fail({Failure::Kind::kObstacle, {std::move(obstacle)}, ""}));
}

bool SharedExchange::is_quiet() const {
  if (traffic_.num_pending() > 0 && num_waiters_.load() == 0) return false;
  return Clock::now() - last_post_ >= kQuiet;
}

bool SharedExchange::is_idle() {
  const std::lock_guard lock(mutex_);
  return traffic_.num_pending() == 0;
}

// While transfers arrive, the helper checks every millisecond, so that posting one need not wake it.
void SharedExchange::help() {
  std::unique_lock lock(mutex_);
  while (!is_ending_.load()) {
    if (is_quiet()) {
      is_helper_idle_ = true;
      helper_call_.wait(lock);
      is_helper_idle_ = false;
    } else {
      helper_call_.wait_for(lock, kGrace);
    }
    if (is_ending_.load() || traffic_.num_pending() == 0) continue;
    const auto now = Clock::now();
    const bool is_alone = num_waiters_.load() == 0 && now - last_post_ >= kGrace;
    const bool is_look_due = now - last_look_ >= 2 * kSlice;
    lock.unlock();
    if (is_alone) {
      drive([this] { return is_ending_.load() || num_waiters_.load() > 0 || is_idle(); }, nullptr, {});
    } else if (is_look_due) {
      look_after();
    }
    lock.lock();
  }
}

}  // namespace

size_t Exchange::channel_bytes() { return (channel_memory_bytes() + 4095) / 4096 * 4096; }

std::unique_ptr<Exchange> make_exchange(const ExchangeOptions& options) {
  return std::make_unique<SharedExchange>(options);
}

}  // namespace cohort::shm
