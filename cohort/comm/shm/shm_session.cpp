#include "cohort/comm/shm/shm_session.h"

#include <c10/util/Exception.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "cohort/base/host.h"
#include "cohort/base/text.h"
#include "cohort/comm/backend/host_program.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/shm/waiting.h"

namespace cohort::comm {
namespace {

using Clock = std::chrono::steady_clock;

// What the caller has before the progress thread takes its work, where cores are shared.
constexpr auto kGrace = std::chrono::milliseconds(1);
// What the others have to come to an operation before its caller goes on and the progress thread takes it. A rank that is ahead
// loses nothing by it, and is ahead less afterwards.
constexpr auto kMoment = std::chrono::milliseconds(1);
// After this long without work the progress thread sleeps until it is woken.
constexpr auto kAttention = std::chrono::milliseconds(50);
// With cores to spare: how long it looks for work before it sleeps; queueing then wakes nobody.
constexpr int kPausesBeforeSleep = 4000;

const Failure& aborted() {
  static const auto* const failure =
      new Failure{Failure::Kind::kAborted, {"the group was aborted on this rank"}, "create a new group to go on"};
  return *failure;
}

std::string argument_text(const ShmCall& call, const Failure& failure) {
  const auto text = std::string(call.operation->name) + ": " + base::join(failure.causes, " ");
  return failure.hint.empty() ? text : text + "; " + failure.hint;
}

// How often this process and those before it have forked since a session was made: cheaper to compare than getpid().
std::atomic<uint64_t> num_forks = 0;

uint64_t count_forks() {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, [] { ++num_forks; });
  return num_forks;
}

Failure forked() {
  return {Failure::Kind::kAborted,
          {"this process was forked from the rank, and is not a member of its groups"},
          "call collectives in the rank itself; start other ranks by spawn, or before the first group"};
}

}  // namespace

ShmSession::ShmSession(std::unique_ptr<shm::Group> group, const BackendRequest& request, Cores cores)
    : owner_(getpid()),
      num_forks_(count_forks()),
      identity_{request.group_name, base::host_name(), request.rank, request.world_size},
      watch_(request.watch),
      cores_(cores),
      shares_tensors_(group->has_arenas()),
      arenas_(group->arenas()),
      timeout_(request.timeout),
      group_(std::move(group)),
      find_obstacle_([this] { return find_obstacle(); }) {}

std::shared_ptr<ShmSession> ShmSession::create(std::unique_ptr<shm::Group> group, const BackendRequest& request,
                                               Cores cores) {
  const std::shared_ptr<ShmSession> session(new ShmSession(std::move(group), request, cores));
  add_background_threads(session);
  return session;
}

ShmSession::~ShmSession() { close(); }

size_t ShmSession::num_pending() {
  auto count = num_queued_.load();  // first, see take()
  count += num_running_.load() + static_cast<size_t>(num_transfers_.load());
  std::vector<Kept> finished;
  const std::lock_guard lock(kept_mutex_);
  finished = take_finished_transfers();
  for (const auto& each : kept_) count += each.is_pending;
  return count;
}

void ShmSession::set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

shm::CallOptions ShmSession::options_of(const ShmCall& call) const {
  shm::CallOptions options;
  options.timeout = call.timeout.count() > 0 ? call.timeout : timeout_.load(std::memory_order_relaxed);
  options.call_site = call.call_site;
  if (call.purpose) options.purpose = call.purpose->number;
  return options;
}

// Called by the engine, in the thread that runs the operation.
std::string ShmSession::find_obstacle() {
  interrupted_ = find_interruption();
  if (interrupted_) {
    was_interrupted_ = true;
    return "interrupted by a signal while it waited";
  }
  if (is_completing_ && ++num_looks_while_completing_ == kLooksBeforeWarning) warn_of_long_wait();
  if (!watch_) return {};
  const auto operation = describe(*running_, running_shown_, identity_);
  if (delayed_ != operation.sequence) watch_->delayed(operation);
  delayed_ = operation.sequence;
  return watch_->find_obstacle(operation);
}

std::exception_ptr ShmSession::to_exception(const ShmCall& call, at::TensorList shown, Failure failure) const {
  try {
    if (failure.kind == Failure::Kind::kArgument) {
      throw_failure({.kind = failure.kind, .causes = {argument_text(call, failure)}});
    }
    const auto operation = describe(call, shown, identity_);
    const bool interrupted = failure.kind == Failure::Kind::kObstacle && was_interrupted_;
    if (interrupted) failure.hint = "destroy_process_group() and start again on every rank";
    if (interrupted || !watch_ || is_forked_child()) throw_failure(failure_of(operation, std::move(failure)));
    failure.timeout = *options_of(call).timeout;
    throw_failure(watch_->explain(operation, std::move(failure)));
  } catch (...) {
    return std::current_exception();
  }
}

// Where each rank has one core, the progress thread's is that of the thread that computes.
bool ShmSession::keeps_core(Runner runner) const {
  return cores_ == Cores::kSpare || (cores_ == Cores::kOwn && runner == Runner::kCaller);
}

std::exception_ptr ShmSession::execute(const ShmCall& call, at::TensorList shown, BodyRef body, Runner runner) {
  const Running running(num_running_);
  if (!group_) return to_exception(call, shown, closed());
  auto options = options_of(call);
  options.keeps_core = keeps_core(runner);
  options.find_obstacle = &find_obstacle_;
  running_ = &call;
  running_shown_ = shown;
  std::exception_ptr exception;
  try {
    const auto outcome = body(*group_, options);
    if (outcome) [[unlikely]] {
      exception = interrupted_ ? std::exchange(interrupted_, nullptr) : to_exception(call, shown, *outcome);
    }
  } catch (...) {
    exception = std::current_exception();
  }
  if (exception) has_failed_ = true;
  return exception;
}

// If another thread runs an operation, that one cannot go on either: an interruption ends both.
std::unique_lock<std::timed_mutex> ShmSession::wait_to_run() {
  std::unique_lock run(run_mutex_, std::try_to_lock);
  if (run) return run;
  const HostUnlocked unlocked;
  while (!run.try_lock_for(kLookInterval)) {
    try {
      throw_interruption();
    } catch (...) {
      abort();
      throw;
    }
  }
  return run;
}

Failure ShmSession::refusal() const { return is_forked_child() ? forked() : closed(); }

bool ShmSession::is_forked_child() const { return num_forks.load(std::memory_order_relaxed) != num_forks_; }

bool ShmSession::run_now(CallMaker make_call, at::TensorList shown, BodyRef body, std::exception_ptr& exception) {
  if (is_forked_child()) [[unlikely]] {
    exception = to_exception(make_call(), shown, forked());
    return true;
  }
  const auto run = wait_to_run();
  if (has_queued()) return false;
  exception = execute(make_call(), shown, body, Runner::kCaller);
  return true;
}

bool ShmSession::run_now(CallMaker make_call, at::TensorList shown, BodyRef body) {
  std::exception_ptr exception;
  const bool has_run = run_now(make_call, shown, body, exception);
  if (exception) std::rethrow_exception(exception);
  return has_run;
}

bool ShmSession::run_now(ShmWork& work, at::TensorList shown, BodyRef body) {
  std::exception_ptr exception;
  if (!run_now([&] { return work.call(); }, shown, body, exception)) return false;
  work.finish_unseen(std::move(exception));
  return true;
}

void ShmSession::enqueue(WorkPtr work) {
  if (is_forked_child()) return refuse(*work, forked());
  std::unique_lock lock(queue_mutex_);
  if (is_closed_) {
    lock.unlock();
    return refuse(*work, closed());
  }
  queue_.push_back(std::move(work));
  num_queued_.store(queue_.size(), std::memory_order_relaxed);
  const bool wakes = is_asleep_;
  if (threads_.empty()) appoint();
  lock.unlock();
  if (wakes) wake_.notify_one();
}

void ShmSession::refuse(ShmWork& work, const Failure& failure) {
  work.finish_with(to_exception(work.call(), work.shown(), failure));
  work.announce();
}

ShmSession::WorkPtr ShmSession::take() {
  const std::lock_guard lock(queue_mutex_);
  if (queue_.empty()) return {};
  auto work = std::move(queue_.front());
  queue_.pop_front();
  num_queued_.store(queue_.size(), std::memory_order_release);  // after the count of those that run
  ++num_taken_;
  if (queue_.empty()) is_in_hurry_ = false;
  return work;
}

ShmSession::WorkPtr ShmSession::run_front(Runner runner) {
  const auto run = wait_to_run();
  // From before it leaves the queue: close() must see it in one place or the other.
  const Running running(num_running_);
  std::optional<Running> in_background;
  if (runner == Runner::kProgressThread) in_background.emplace(num_running_in_background_);
  auto work = take();
  if (!work) return work;
  work->finish_with(execute(work->call(), work->shown(), work->body(), runner));
  if (auto exception = work->exception(); exception && is_completing_ && num_lost_++ == 0) {
    first_lost_ = std::move(exception);
  }
  return work;
}

// True if it ran.
bool ShmSession::run_with_others(const ShmWork& work) {
  WorkPtr front;
  {
    const std::unique_lock run(run_mutex_, std::try_to_lock);
    if (!run.owns_lock() || !group_) return false;
    {
      const std::lock_guard lock(queue_mutex_);
      if (queue_.empty() || queue_.front().get() != &work) return false;
    }
    auto options = options_of(work.call());
    options.keeps_core = keeps_core(Runner::kCaller);
    if (!group_->meet_soon(kMoment, options)) return false;
    const Running running(num_running_);
    front = take();
    if (!front) return false;
    front->finish_with(execute(front->call(), front->shown(), front->body(), Runner::kCaller));
  }
  front->announce();
  return true;
}

void ShmSession::run_or_hurry(ShmWork& work) {
  if (cores_ != Cores::kSpare && run_with_others(work)) return;
  hurry();
}

void ShmSession::run_through(ShmWork& work) {
  // Where another thread runs it, it will most likely end soon.
  for (int i = 0; cores_ == Cores::kSpare && i < kPausesBeforeSleep && num_running_.load() > 0 && !work.is_done();
       ++i) {
    shm::pause();
  }
  while (!work.is_done()) {
    if (const auto ended = run_front(Runner::kCaller)) ended->announce();
  }
}

void ShmSession::hurry() {
  {
    const std::lock_guard lock(queue_mutex_);
    is_in_hurry_ = !queue_.empty();
    if (is_in_hurry_ && !has_leader_ && !is_closed_) appoint();
  }
  wake_.notify_one();
}

void ShmSession::wait_for_work(std::unique_lock<std::mutex>& lock, bool is_quiet) {
  const auto has_work = [this] { return is_closed_ || !queue_.empty(); };
  if (cores_ == Cores::kSpare && !is_quiet) {
    lock.unlock();
    for (int i = 0; i < kPausesBeforeSleep && num_queued_.load(std::memory_order_relaxed) == 0; ++i) shm::pause();
    lock.lock();
    if (has_work()) return;
  }
  is_asleep_ = is_quiet || cores_ == Cores::kSpare;
  if (is_quiet) {
    wake_.wait(lock, has_work);
  } else {
    wake_.wait_for(lock, kGrace, has_work);
  }
  is_asleep_ = false;
}

// True if the front of the queue is not to be taken yet.
bool ShmSession::gives_grace(std::unique_lock<std::mutex>& lock) {
  if (cores_ == Cores::kSpare || is_in_hurry_) return false;
  const auto num_taken = num_taken_;
  wake_.wait_for(lock, kGrace, [this] { return is_closed_ || is_in_hurry_; });
  return num_taken_ != num_taken;
}

// Needs queue_mutex_. Another progress thread leads from now on.
void ShmSession::appoint() {
  has_leader_ = true;
  if (num_spare_threads_ > num_appointed_) {
    ++num_appointed_;
    spare_.notify_one();
  } else {
    threads_.emplace_back([self = shared_from_this()] { self->work_in_background(); });
  }
}

// True if this thread still leads afterwards.
bool ShmSession::announce_as_leader(ShmWork& work) {
  if (!work.has_future()) {
    work.announce();
    return true;
  }
  {
    const std::lock_guard lock(queue_mutex_);
    has_leader_ = false;
    if (!queue_.empty() && !is_closed_) appoint();
  }
  work.announce();
  const std::lock_guard lock(queue_mutex_);
  return !std::exchange(has_leader_, true);
}

// Without the queue's lock: this may drop the last reference to the work.
ShmSession::Step ShmSession::run_and_announce() {
  const auto work = run_front(Runner::kProgressThread);
  if (!work) return Step::kNothingToRun;
  return announce_as_leader(*work) ? Step::kRan : Step::kLeadLost;
}

// Until another thread leads, or the group is closed.
void ShmSession::lead(std::unique_lock<std::mutex>& lock) {
  auto last_work = Clock::now();
  while (!is_closed_) {
    if (queue_.empty()) {
      wait_for_work(lock, Clock::now() - last_work > kAttention);
      continue;
    }
    last_work = Clock::now();
    if (gives_grace(lock)) continue;
    // What has been queued meanwhile has had its time.
    for (auto left = queue_.size(); left > 0 && !is_closed_; --left) {
      lock.unlock();
      const auto step = run_and_announce();
      lock.lock();
      if (step == Step::kLeadLost) return;
      if (step == Step::kNothingToRun) break;
    }
  }
}

void ShmSession::work_in_background() {
  pthread_setname_np(pthread_self(), "cohort-shm");
  std::unique_lock lock(queue_mutex_);
  while (!is_closed_) {
    lead(lock);
    ++num_spare_threads_;
    spare_.wait(lock, [this] { return is_closed_ || num_appointed_ > 0; });
    --num_spare_threads_;
    if (num_appointed_ > 0) --num_appointed_;
  }
}

void ShmSession::fail_queue(const Failure& failure) {
  while (const auto work = take()) refuse(*work, failure);
}

void ShmSession::abort() {
  {
    const std::shared_lock lock(lifetime_);
    if (group_) group_->abort();
  }
  fail_queue(aborted());
}

ShmSession::OpenExchange ShmSession::exchange() {
  if (is_forked_child()) return {};
  OpenExchange open{std::shared_lock(lifetime_), nullptr};
  if (group_) open.exchange = &group_->exchange();
  return open;
}

std::vector<ShmSession::Kept> ShmSession::take_finished_transfers() {
  const auto first = std::partition(kept_.begin(), kept_.end(), [](const auto& it) { return !it.transfer->is_done(); });
  std::vector<Kept> finished(std::make_move_iterator(first), std::make_move_iterator(kept_.end()));
  kept_.erase(first, kept_.end());
  return finished;
}

// Sends that failed, and receives that nobody will see.
size_t ShmSession::num_unfinished_transfers() {
  const std::lock_guard lock(kept_mutex_);
  const auto is_lost = [](const auto& it) {
    return it.is_pending && (!it.transfer->is_done() || it.transfer->failure() != nullptr);
  };
  return static_cast<size_t>(std::count_if(kept_.begin(), kept_.end(), is_lost));
}

void ShmSession::keep(Kept transfer) {
  std::vector<Kept> finished;
  const std::lock_guard lock(kept_mutex_);
  finished = take_finished_transfers();
  kept_.push_back(std::move(transfer));
}

}  // namespace cohort::comm
