#include "cohort/comm/watch/tracked_work.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <atomic>
#include <chrono>
#include <list>
#include <mutex>

#include "cohort/base/system/deadline.h"
#include "cohort/comm/error/exception_text.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/comm/watch/unawaited_works.h"

namespace cohort::comm {
namespace {

constexpr auto kLookInterval = std::chrono::milliseconds(250);

struct AbandonedWork {
  c10::intrusive_ptr<c10d::Work> work;
  bool is_receive = false;
};
using AbandonedWorks = std::list<AbandonedWork>;

// Works whose TrackedWork was dropped while they still ran. Leaked on purpose: read at exit.
struct Abandoned {
  std::mutex mutex;
  AbandonedWorks works;
};

// After a failure nobody relies on operations that were started, and they may never end.
std::atomic<bool> has_failed = false;

Abandoned& abandoned() {
  static auto* const instance = new Abandoned;
  return *instance;
}

// Call it with the lock, and destroy the result without it: a work may hold the last reference to a tensor that Python knows.
AbandonedWorks take_completed(AbandonedWorks& works) {
  AbandonedWorks completed;
  for (auto it = works.begin(); it != works.end();) {
    const auto item = it++;
    if (item->work->isCompleted()) completed.splice(completed.end(), works, item);
  }
  return completed;
}

}  // namespace

size_t num_pending_operations() {
  auto& state = abandoned();
  AbandonedWorks completed;
  const std::lock_guard lock(state.mutex);
  completed = take_completed(state.works);
  return state.works.size();
}

size_t complete_pending_operations() {
  AbandonedWorks works;
  {
    const std::lock_guard lock(abandoned().mutex);
    works = abandoned().works;  // works that do not complete stay there: the engine may still use their memory
  }
  size_t num_lost = 0;
  for (const auto& [work, is_receive] : works) {
    try {
      const bool is_waited_for = !is_receive && !has_failed;
      if (is_waited_for ? !work->wait() : !work->isCompleted()) ++num_lost;
    } catch (const std::exception&) {
      ++num_lost;
    }
  }
  return num_lost;
}

TrackedWork::TrackedWork(c10::intrusive_ptr<c10d::Work> work, job::Operation operation,
                         std::shared_ptr<OperationWatch> watch, Translator translate, std::function<void()> after)
    : Work(),
      work_(std::move(work)),
      operation_(std::move(operation)),
      watch_(std::move(watch)),
      translate_(translate),
      after_(std::move(after)) {}

TrackedWork::~TrackedWork() {
  if (operation_.purpose.empty() && !is_awaited_ && !has_failed) {
    note_unawaited(operation_.name, operation_.sequence, operation_.group,
                   operation_.point_to_point ? UnawaitedOn::kThisRank : UnawaitedOn::kAllRanks);
  }
  if (work_->isCompleted()) return;
  auto& state = abandoned();
  AbandonedWorks completed;
  const std::lock_guard lock(state.mutex);
  completed = take_completed(state.works);
  state.works.push_back({work_, operation_.point_to_point && operation_.name == "recv"});
}

void TrackedWork::run_after() {
  if (after_) std::call_once(after_once_, after_);
}

bool TrackedWork::isCompleted() {
  is_awaited_ = true;
  if (!work_->isCompleted()) return false;
  if (!work_->exception()) run_after();
  return true;
}

bool TrackedWork::isSuccess() const { return work_->isSuccess(); }

std::exception_ptr TrackedWork::exception() const {
  const auto failure = work_->exception();
  if (!failure) return nullptr;
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    try {
      throw_explained(translate_(error));
    } catch (...) {
      return std::current_exception();
    }
  }
}

std::vector<at::Tensor> TrackedWork::result() {
  auto tensors = work_->result();  // throws unless completed
  run_after();
  return result_ ? *result_ : tensors;
}

void TrackedWork::throw_explained(const Failure& failure) const {
  has_failed = true;
  throw_failure(watch_->find_cause(operation_, failure));
}

// An operation that still runs when its wait ends has timed out, whatever the engine says.
Failure TrackedWork::failure_of_wait(const std::exception& error) const {
  const bool has_ended = work_->isCompleted() || work_->exception();
  return has_ended ? translate_(error) : Failure{.kind = Failure::Kind::kTimeout, .causes = {text_of(error)}};
}

bool TrackedWork::wait_for_engine(std::chrono::milliseconds timeout) {
  try {
    return work_->wait(timeout);
  } catch (const std::exception& error) {
    throw_explained(failure_of_wait(error));
  }
}

bool TrackedWork::wait_in_slices() {
  while (!work_->isCompleted()) {
    try {
      return work_->wait(kLookInterval);
    } catch (const std::exception&) {
      if (work_->isCompleted()) break;  // completed or failed; the last wait below throws
    }
    const auto obstacle = watch_->find_obstacle(operation_);
    if (!obstacle.empty()) throw_explained({.kind = Failure::Kind::kObstacle, .causes = {obstacle}});
  }
  return wait_for_engine(kNoTimeout);
}

// Gloo's collectives allow several waits in a row. Its send and receive do not: a timeout there ends the connection.
bool TrackedWork::wait(std::chrono::milliseconds timeout) {
  is_awaited_ = true;
  timeout = base::bounded_time(timeout);
  const bool can_slice = dynamic_cast<c10d::ProcessGroupGloo::SendWork*>(work_.get()) == nullptr &&
                         dynamic_cast<c10d::ProcessGroupGloo::RecvWork*>(work_.get()) == nullptr;
  const bool slices = timeout == kNoTimeout && can_slice;
  if (!(slices ? wait_in_slices() : wait_for_engine(timeout))) return false;
  run_after();
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> TrackedWork::getFuture() {
  is_awaited_ = true;
  auto self = c10::intrusive_ptr<TrackedWork>::reclaim_copy(this);
  auto inner = work_->getFuture();
  auto type = result_ ? c10::TypePtr(c10::ListType::ofTensors()) : inner->elementType();
  return inner->then(
      [self](c10::ivalue::Future& done) {
        if (done.hasError()) {
          try {
            std::rethrow_exception(done.exception_ptr());
          } catch (const std::exception& error) {
            self->throw_explained(self->translate_(error));
          }
        }
        self->run_after();
        return self->result_ ? c10::IValue(*self->result_) : done.value();
      },
      type);
}

}  // namespace cohort::comm
