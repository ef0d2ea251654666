#include "cohort/comm/shm/shm_session.h"

#include <c10/util/Exception.h>
#include <pthread.h>
#include <unistd.h>

#include <set>

#include "cohort/comm/failure_text.h"
#include "cohort/comm/join_backend.h"
#include "cohort/comm/peer.h"
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

const shm::Failure& closed() {
  static const auto* const failure =
      new shm::Failure{shm::Failure::Kind::kAborted,
                       {"the group was destroyed, or shut down, before the operation ended"},
                       "wait() for every Work before destroy_process_group()"};
  return *failure;
}

const shm::Failure& aborted() {
  static const auto* const failure = new shm::Failure{
      shm::Failure::Kind::kAborted, {"the group was aborted on this rank"}, "create a new group to go on"};
  return *failure;
}

// Those that are open. Leaked on purpose: read at exit.
struct Sessions {
  std::mutex mutex;
  std::set<ShmSession*> open;
};

Sessions& sessions() {
  static auto* const instance = new Sessions;
  return *instance;
}

EngineFailure::Kind kind_of(shm::Failure::Kind kind) {
  switch (kind) {
    case shm::Failure::Kind::kTimeout:
      return EngineFailure::Kind::kTimeout;
    case shm::Failure::Kind::kLostRank:
      return EngineFailure::Kind::kLostRank;
    case shm::Failure::Kind::kMismatch:
      return EngineFailure::Kind::kMismatch;
    case shm::Failure::Kind::kObstacle:
      return EngineFailure::Kind::kObstacle;
    default:
      return EngineFailure::Kind::kOther;
  }
}

void close_sessions(bool idle_ones_too) {
  std::vector<std::shared_ptr<ShmSession>> found;
  {
    const std::lock_guard lock(sessions().mutex);
    for (auto* session : sessions().open) {
      if (!idle_ones_too && session->num_pending() == 0) continue;
      if (auto owner = session->weak_from_this().lock()) found.push_back(std::move(owner));
    }
  }
  for (const auto& session : found) session->close();
}

std::atomic<Interruption> current_interruption = nullptr;

}  // namespace

void set_interruption(Interruption interruption) { current_interruption = interruption; }

void end_background_threads() { end_shm_threads(); }

size_t num_pending_shm_operations() {
  const std::lock_guard lock(sessions().mutex);
  size_t count = 0;
  for (auto* session : sessions().open) count += session->num_pending();
  return count;
}

void end_shm_operations() { close_sessions(/*idle_ones_too=*/false); }

void end_shm_threads() { close_sessions(/*idle_ones_too=*/true); }

ShmSession::ShmSession(std::unique_ptr<shm::Group> group, const BackendRequest& request, Cores cores)
    : owner_(getpid()),
      identity_{request.group_name, host_name(), request.rank, request.world_size},
      watch_(request.watch),
      cores_(cores),
      timeout_(request.timeout),
      group_(std::move(group)),
      find_obstacle_([this] { return find_obstacle(); }) {}

std::shared_ptr<ShmSession> ShmSession::create(std::unique_ptr<shm::Group> group, const BackendRequest& request,
                                               Cores cores) {
  const std::shared_ptr<ShmSession> session(new ShmSession(std::move(group), request, cores));
  const std::lock_guard lock(sessions().mutex);
  sessions().open.insert(session.get());
  return session;
}

ShmSession::~ShmSession() { close(); }

size_t ShmSession::num_pending() {
  auto count = num_queued_.load() + num_running_.load() + static_cast<size_t>(num_transfers_.load());
  const std::lock_guard lock(kept_mutex_);
  drop_finished_transfers();
  for (const auto& each : kept_) count += each.is_pending;
  return count;
}

void ShmSession::set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

shm::CallOptions ShmSession::options_of(const ShmCall& call) const {
  shm::CallOptions options;
  options.timeout = call.timeout.count() > 0 ? call.timeout : timeout_.load(std::memory_order_relaxed);
  options.call_site = call.call_site;
  return options;
}

// Called by the engine, in the thread that runs the operation.
std::string ShmSession::find_obstacle() {
  if (const auto interruption = current_interruption.load()) {
    if ((interrupted_ = interruption())) return "this process was interrupted while it waited";
  }
  if (!watch_) return {};
  const auto operation = describe(*running_, *running_shown_, identity_);
  if (delayed_ != operation.sequence) watch_->delayed(operation);
  delayed_ = operation.sequence;
  return watch_->find_obstacle(operation);
}

std::exception_ptr ShmSession::to_exception(const ShmCall& call, const Tensors& shown,
                                            const shm::Failure& failure) const {
  try {
    if (failure.kind == shm::Failure::Kind::kArgument) {
      std::string text = std::string(call.operation->name) + ":";
      for (const auto& cause : failure.causes) text += " " + cause;
      C10_THROW_ERROR(ValueError, failure.hint.empty() ? text : text + "; " + failure.hint);
    }
    auto operation = describe(call, shown, identity_);
    if (!watch_) C10_THROW_ERROR(DistBackendError, failure_message({operation, failure.causes, failure.hint}));
    C10_THROW_ERROR(DistBackendError, watch_->explain(operation, EngineFailure{.kind = kind_of(failure.kind),
                                                                               .causes = failure.causes,
                                                                               .hint = failure.hint,
                                                                               .missing = failure.missing,
                                                                               .timeout = *options_of(call).timeout}));
  } catch (...) {
    return std::current_exception();
  }
}

// Where each rank has one core, the progress thread's is that of the thread that computes.
bool ShmSession::keeps_core(Runner runner) const {
  return cores_ == Cores::kSpare || (cores_ == Cores::kOwn && runner == Runner::kCaller);
}

std::exception_ptr ShmSession::execute(const ShmCall& call, const Tensors& shown, BodyRef body, Runner runner) {
  if (!group_) return to_exception(call, shown, closed());
  auto options = options_of(call);
  options.keeps_core = keeps_core(runner);
  options.find_obstacle = &find_obstacle_;
  running_ = &call;
  running_shown_ = &shown;
  num_running_.store(1, std::memory_order_relaxed);
  std::exception_ptr exception;
  try {
    const auto outcome = body(*group_, options);
    if (outcome) [[unlikely]] {
      exception = interrupted_ ? std::exchange(interrupted_, nullptr) : to_exception(call, shown, *outcome);
    }
  } catch (...) {
    exception = std::current_exception();
  }
  num_running_.store(0, std::memory_order_relaxed);
  return exception;
}

bool ShmSession::run_now(ShmWork& work, const Tensors& shown, BodyRef body) {
  const std::lock_guard run(run_mutex_);
  if (num_queued_.load(std::memory_order_relaxed) > 0) return false;
  work.finish_unseen(execute(work.call(), shown, body, Runner::kCaller));
  return true;
}

void ShmSession::enqueue(WorkPtr work) {
  bool wakes = false;
  {
    const std::lock_guard lock(queue_mutex_);
    if (is_closed_) {
      work->finish_with(to_exception(work->call(), work->shown(), closed()));
      return;
    }
    queue_.push_back(std::move(work));
    num_queued_.store(queue_.size(), std::memory_order_relaxed);
    wakes = is_asleep_;
    if (!thread_.joinable()) thread_ = std::thread([self = shared_from_this()] { self->work_in_background(); });
  }
  if (wakes) wake_.notify_one();
}

ShmSession::WorkPtr ShmSession::take() {
  const std::lock_guard lock(queue_mutex_);
  if (queue_.empty()) return {};
  auto work = std::move(queue_.front());
  queue_.pop_front();
  num_queued_.store(queue_.size(), std::memory_order_relaxed);
  ++num_taken_;
  if (queue_.empty()) is_in_hurry_ = false;
  return work;
}

bool ShmSession::run_front(Runner runner) {
  WorkPtr work;
  {
    const std::lock_guard run(run_mutex_);
    work = take();
    if (!work) return false;
    work->finish_with(execute(work->call(), work->shown(), work->body(), runner));
  }
  work->announce();
  return true;
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
  while (!work.is_done()) run_front(Runner::kCaller);
}

void ShmSession::hurry() {
  {
    const std::lock_guard lock(queue_mutex_);
    is_in_hurry_ = !queue_.empty();
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

void ShmSession::work_in_background() {
  pthread_setname_np(pthread_self(), "cohort-shm");
  std::unique_lock lock(queue_mutex_);
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
      if (!run_front(Runner::kProgressThread)) left = 1;
      lock.lock();
    }
  }
}

void ShmSession::fail_queue(const shm::Failure& failure) {
  while (const auto work = take()) {
    work->finish_with(to_exception(work->call(), work->shown(), failure));
    work->announce();
  }
}

void ShmSession::abort() {
  {
    const std::shared_lock lock(lifetime_);
    if (group_) group_->abort();
  }
  fail_queue(aborted());
}

// Locks may be held by threads that the child does not have.
void ShmSession::forget() {
  if (thread_.joinable()) thread_.detach();
  (void)group_.release();
}

void ShmSession::close() {
  if (getpid() != owner_) return forget();
  std::thread thread;
  {
    const std::lock_guard lock(queue_mutex_);
    if (is_closed_) return;
    is_closed_ = true;
    thread.swap(thread_);
  }
  wake_.notify_all();
  {
    const std::lock_guard lock(sessions().mutex);
    sessions().open.erase(this);
  }
  if (num_pending() > 0) {
    const std::shared_lock lock(lifetime_);
    group_->abort();
  }
  fail_queue(closed());
  // A future's callback may drop the last reference to the group in the progress thread itself.
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();
  } else if (thread.joinable()) {
    thread.join();
  }
  const std::lock_guard run(run_mutex_);
  const std::lock_guard lifetime(lifetime_);
  group_.reset();
  const std::lock_guard kept(kept_mutex_);
  kept_.clear();
}

ShmSession::OpenExchange ShmSession::exchange() {
  OpenExchange open{std::shared_lock(lifetime_), nullptr};
  if (group_) open.exchange = &group_->exchange();
  return open;
}

void ShmSession::drop_finished_transfers() {
  std::erase_if(kept_, [](const auto& each) { return each.transfer->is_done(); });
}

void ShmSession::keep(shm::TransferPtr transfer, at::Tensor memory) {
  const std::lock_guard lock(kept_mutex_);
  drop_finished_transfers();
  kept_.push_back({std::move(transfer), std::move(memory), /*is_pending=*/false});
}

void ShmSession::keep_pending(shm::TransferPtr transfer, at::Tensor memory) {
  const std::lock_guard lock(kept_mutex_);
  drop_finished_transfers();
  kept_.push_back({std::move(transfer), std::move(memory), /*is_pending=*/true});
}

}  // namespace cohort::comm
