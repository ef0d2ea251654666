#include "cohort/comm/watch/tracked_work.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <chrono>
#include <list>
#include <mutex>
#include <stdexcept>

namespace cohort::comm {
namespace {

constexpr auto kLookInterval = std::chrono::milliseconds(250);

// Works whose TrackedWork was dropped while they still ran. Leaked on purpose: read at exit.
struct Abandoned {
  std::mutex mutex;
  std::list<c10::intrusive_ptr<c10d::Work>> works;
};

Abandoned& abandoned() {
  static auto* const instance = new Abandoned;
  return *instance;
}

}  // namespace

size_t num_pending_operations() {
  auto& state = abandoned();
  const std::lock_guard lock(state.mutex);
  state.works.remove_if([](auto& work) { return work->isCompleted(); });
  return state.works.size();
}

TrackedWork::TrackedWork(c10::intrusive_ptr<c10d::Work> work, job::Operation operation,
                         std::shared_ptr<OperationWatch> watch, std::function<void()> after)
    : Work(),
      work_(std::move(work)),
      operation_(std::move(operation)),
      watch_(std::move(watch)),
      after_(std::move(after)) {}

TrackedWork::~TrackedWork() {
  if (work_->isCompleted()) return;
  auto& state = abandoned();
  const std::lock_guard lock(state.mutex);
  state.works.remove_if([](auto& work) { return work->isCompleted(); });
  state.works.push_back(work_);
}

void TrackedWork::run_after() {
  if (after_) std::call_once(after_once_, after_);
}

bool TrackedWork::isCompleted() {
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
      throw_explained(*watch_, operation_, error);
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

// Gloo's collectives can be waited for in slices; its send and receive cannot, as a time-out there ends the connection.
bool TrackedWork::wait_for_engine(std::chrono::milliseconds timeout) {
  const bool can_slice = dynamic_cast<c10d::ProcessGroupGloo::SendWork*>(work_.get()) == nullptr &&
                         dynamic_cast<c10d::ProcessGroupGloo::RecvWork*>(work_.get()) == nullptr;
  if (timeout != kNoTimeout || !can_slice) return work_->wait(timeout);
  while (!work_->isCompleted()) {
    try {
      return work_->wait(kLookInterval);
    } catch (const std::exception&) {
      if (work_->isCompleted()) break;  // done or failed, which the last wait tells
    }
    const auto obstacle = watch_->find_obstacle(operation_);
    if (!obstacle.empty()) throw std::runtime_error(obstacle);
  }
  return work_->wait();
}

bool TrackedWork::wait(std::chrono::milliseconds timeout) {
  try {
    if (!wait_for_engine(timeout)) return false;
  } catch (const std::exception& error) {
    throw_explained(*watch_, operation_, error);
  }
  run_after();
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> TrackedWork::getFuture() {
  auto self = c10::intrusive_ptr<TrackedWork>::reclaim_copy(this);
  auto inner = work_->getFuture();
  auto type = result_ ? c10::TypePtr(c10::ListType::ofTensors()) : inner->elementType();
  return inner->then(
      [self](c10::ivalue::Future& done) {
        if (done.hasError()) {
          try {
            std::rethrow_exception(done.exception_ptr());
          } catch (const std::exception& error) {
            throw_explained(*self->watch_, self->operation_, error);
          }
        }
        self->run_after();
        return self->result_ ? c10::IValue(*self->result_) : done.value();
      },
      type);
}

}  // namespace cohort::comm
