#include "cohort/comm/shm/shm_session.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "cohort/base/log/log.h"
#include "cohort/base/system/host.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/backend/host_program.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/shm/transfer/waiting.h"

namespace cohort::comm {
namespace {

// The time that the other ranks have to come to an operation before its caller goes on and the progress thread takes it. A rank
// that is ahead loses nothing by waiting, and is less ahead afterwards.
constexpr auto kMoment = std::chrono::milliseconds(1);

const Failure& aborted() {
  static const auto* const failure =
      new Failure{Failure::Kind::kAborted, {"the group was aborted on this rank"}, "create a new group to go on"};
  return *failure;
}

std::string argument_text(const ShmCall& call, const Failure& failure) {
  const auto text = std::string(call.operation->name) + ": " + base::join(failure.causes, " ");
  return failure.hint.empty() ? text : text + "; " + failure.hint;
}

// The number of forks of this process and its ancestors since a session was made: cheaper to compare than getpid().
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
      running_(identity_, watch_.get()),
      queue_(cores, [this] { return start_progress_thread(); }) {}

std::shared_ptr<ShmSession> ShmSession::create(std::unique_ptr<shm::Group> group, const BackendRequest& request,
                                               Cores cores) {
  const std::shared_ptr<ShmSession> session(new ShmSession(std::move(group), request, cores));
  add_background_threads(session);
  return session;
}

ShmSession::~ShmSession() { close(); }

std::thread ShmSession::start_progress_thread() {
  return std::thread([self = shared_from_this()] {
    self->queue_.work_in_background([&] { return self->run_front(Runner::kProgressThread); });
  });
}

size_t ShmSession::num_pending() {
  auto count = queue_.size();  // first, see WorkQueue::take()
  count += num_running_.load();
  return count + transfers_.num_pending();
}

void ShmSession::set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

shm::CallOptions ShmSession::options_of(const ShmCall& call) const {
  shm::CallOptions options;
  options.timeout = call.timeout.count() > 0 ? call.timeout : timeout_.load(std::memory_order_relaxed);
  options.call_site = call.call_site;
  if (call.purpose) options.purpose = call.purpose->number;
  return options;
}

std::exception_ptr ShmSession::to_exception(const ShmCall& call, at::TensorList shown, Failure failure) const {
  try {
    if (failure.kind == Failure::Kind::kArgument) {
      throw_failure({.kind = failure.kind, .causes = {argument_text(call, failure)}});
    }
    const auto operation = describe(call, shown, identity_);
    const bool interrupted = failure.kind == Failure::Kind::kObstacle && running_.was_interrupted();
    if (interrupted) failure.hint = "destroy_process_group() and start again on every rank";
    if (interrupted || !watch_ || is_forked_child()) throw_failure(failure_of(operation, std::move(failure)));
    failure.timeout = *options_of(call).timeout;
    throw_failure(watch_->explain(operation, std::move(failure)));
  } catch (...) {
    return std::current_exception();
  }
}

// If each rank has one core, the progress thread shares it with the thread that computes.
bool ShmSession::keeps_core(Runner runner) const {
  return cores_ == Cores::kSpare || (cores_ == Cores::kOwn && runner == Runner::kCaller);
}

std::exception_ptr ShmSession::execute(const ShmCall& call, at::TensorList shown, BodyRef body, Runner runner) {
  const Running running(num_running_);
  if (!group_) return to_exception(call, shown, closed());
  auto options = options_of(call);
  options.keeps_core = keeps_core(runner);
  running_.begin(call, shown, options);
  std::exception_ptr exception;
  try {
    const auto outcome = body(*group_, options);
    if (outcome) [[unlikely]] {
      exception = running_.take_interruption();
      if (!exception) exception = to_exception(call, shown, *outcome);
    }
  } catch (...) {
    exception = std::current_exception();
  }
  if (exception) has_failed_ = true;
  return exception;
}

// An interruption also ends an operation that another thread runs, because that one cannot go on, either.
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

const Failure& ShmSession::closed() {
  static const auto* const failure = new Failure{Failure::Kind::kAborted,
                                                 {"the group was destroyed, or shut down, before the operation ended"},
                                                 "wait() for every Work before destroy_process_group()"};
  return *failure;
}

Failure ShmSession::refusal() const { return is_forked_child() ? forked() : closed(); }

bool ShmSession::is_forked_child() const { return num_forks.load(std::memory_order_relaxed) != num_forks_; }

bool ShmSession::run_now(CallMaker make_call, at::TensorList shown, BodyRef body, std::exception_ptr& exception) {
  if (is_forked_child()) [[unlikely]] {
    exception = to_exception(make_call(), shown, forked());
    return true;
  }
  const auto run = wait_to_run();
  if (queue_.has_queued()) return false;
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
  if (!queue_.push(work)) refuse(*work, closed());
}

void ShmSession::refuse(ShmWork& work, const Failure& failure) {
  work.finish_with(to_exception(work.call(), work.shown(), failure));
  work.announce();
}

ShmSession::WorkPtr ShmSession::run_front(Runner runner) {
  const auto run = wait_to_run();
  // Counts before the work leaves the queue: close() must see it in one place or the other.
  const Running running(num_running_);
  std::optional<Running> in_background;
  if (runner == Runner::kProgressThread) in_background.emplace(num_running_in_background_);
  auto work = queue_.take();
  if (!work) return work;
  work->finish_with(execute(work->call(), work->shown(), work->body(), runner));
  if (auto exception = work->exception(); exception && running_.is_completing() && num_lost_++ == 0) {
    first_lost_ = std::move(exception);
  }
  return work;
}

// Returns true if it ran.
bool ShmSession::run_with_others(const ShmWork& work) {
  WorkPtr front;
  {
    const std::unique_lock run(run_mutex_, std::try_to_lock);
    if (!run.owns_lock() || !group_ || !queue_.is_front(work)) return false;
    auto options = options_of(work.call());
    options.keeps_core = keeps_core(Runner::kCaller);
    if (!group_->meet_soon(kMoment, options)) return false;
    const Running running(num_running_);
    front = queue_.take();
    if (!front) return false;
    front->finish_with(execute(front->call(), front->shown(), front->body(), Runner::kCaller));
  }
  front->announce();
  return true;
}

void ShmSession::run_or_hurry(ShmWork& work) {
  if (cores_ != Cores::kSpare && run_with_others(work)) return;
  queue_.hurry();
}

void ShmSession::run_through(ShmWork& work) {
  // If another thread runs the work, it will most likely end soon.
  for (int i = 0; cores_ == Cores::kSpare && i < kPausesBeforeSleep && num_running_.load() > 0 && !work.is_done();
       ++i) {
    shm::pause();
  }
  while (!work.is_done()) {
    if (const auto ended = run_front(Runner::kCaller)) ended->announce();
  }
}

void ShmSession::fail_queue(const Failure& failure) {
  while (const auto work = queue_.take()) refuse(*work, failure);
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

// ---- The end: completes what was started, then leaves the group.

void ShmSession::complete_queue() {
  while (queue_.size() > 0) {
    if (const auto work = run_front(Runner::kCaller)) work->announce();
  }
  // No limit for a thread that waits for its own operation.
  while (num_running_in_background_.load() > 0) {
    std::unique_lock run(run_mutex_, std::defer_lock);
    if (!run.try_lock_for(kLookInterval)) throw_interruption();
  }
}

void ShmSession::complete_sends() {
  for (;;) {
    const auto open = exchange();
    if (!open.exchange || open.exchange->wait_for_sends(kLookInterval)) return;
    throw_interruption();
  }
}

void ShmSession::settle() {
  if (ends_without_waiting()) return;
  // No wait for a thread within an operation of its own.
  const std::unique_lock run(run_mutex_, std::try_to_lock);
  if (!run.owns_lock() || !group_ || group_->is_settled() || group_->failure()) return;
  const Running running(num_running_);  // so that close() ends it
  std::exception_ptr interruption;
  int num_looks = 0;
  const std::function<std::string()> look = [&]() -> std::string {
    interruption = find_interruption();
    if (interruption) return "interrupted by a signal";
    if (++num_looks == kLooksBeforeWarning) {
      base::log_warning(fmt::format(
          "group \"{}\" is to be destroyed, and waits until all ranks have come to this rank's last operation. Make "
          "the same number of calls on all ranks.",
          identity_.group));
    }
    return {};
  };
  const auto failure = group_->settle({.timeout = timeout_.load(), .find_obstacle = &look});
  if (interruption) std::rethrow_exception(interruption);
  if (!failure || failure->kind == Failure::Kind::kAborted) return;
  base::log_warning(fmt::format("the last operations on group \"{}\" have not ended well on all ranks\n{}\n{}",
                                identity_.group, base::join(failure->causes, "\n"), failure->hint));
}

size_t ShmSession::complete() {
  if (is_forked_child()) return 0;
  const HostUnlocked unlocked;
  running_.set_completing(true);
  do {
    complete_queue();
    complete_sends();
    settle();
  } while (queue_.size() > 0);  // callbacks may start more
  running_.set_completing(false);
  return num_lost_ + transfers_.num_lost();
}

void ShmSession::warn_of_lost(size_t count) const {
  auto text = fmt::format(
      "group \"{}\" was destroyed with {} operation(s) that nobody waited for and that could not be completed. Call "
      "wait() on "
      "every Work before destroy_process_group().",
      identity_.group, count);
  try {
    if (first_lost_) std::rethrow_exception(first_lost_);
  } catch (const std::exception& error) {
    text += "\n" + text_of(error);
  }
  base::log_warning(text);
}

void ShmSession::complete_and_close() {
  const bool had_failed = has_failed_;
  try {
    const auto num_lost = complete();
    if (num_lost > 0 && !had_failed) warn_of_lost(num_lost);
  } catch (...) {
    close();
    throw;
  }
  close();
}

void ShmSession::forget() {
  queue_.forget_threads();
  [[maybe_unused]] auto* const left_as_it_is = group_.release();
}

void ShmSession::close() {
  if (getpid() != owner_) return forget();
  const HostUnlocked unlocked;
  auto threads = queue_.close();
  if (!threads) return;
  remove_background_threads(*this);
  if (num_pending() > 0) {
    const std::shared_lock lock(lifetime_);
    group_->abort();
  }
  fail_queue(closed());
  // A future's callback may drop the last reference to the group in a progress thread, which cannot join itself.
  for (auto& thread : *threads) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
  {
    const std::lock_guard run(run_mutex_);
    const std::lock_guard lifetime(lifetime_);
    group_.reset();
  }
  transfers_.clear();
}

}  // namespace cohort::comm
