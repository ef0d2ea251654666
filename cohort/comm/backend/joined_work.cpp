#include "cohort/comm/backend/joined_work.h"

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <algorithm>

namespace cohort::comm {

using c10::ivalue::Future;

JoinedWork::JoinedWork(std::vector<c10::intrusive_ptr<c10d::Work>> works) : works_(std::move(works)) {}

bool JoinedWork::isCompleted() {
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
}

bool JoinedWork::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isSuccess(); });
}

std::exception_ptr JoinedWork::exception() const {
  for (const auto& work : works_) {
    if (auto failure = work->exception()) return failure;
  }
  return nullptr;
}

std::vector<at::Tensor> JoinedWork::result() { return works_.front()->result(); }

void JoinedWork::synchronize() {
  for (const auto& work : works_) work->synchronize();
}

bool JoinedWork::wait(std::chrono::milliseconds timeout) {
  return std::all_of(works_.begin(), works_.end(), [&](const auto& work) { return work->wait(timeout); });
}

void JoinedWork::abort() {
  for (const auto& work : works_) work->abort();
}

c10::intrusive_ptr<Future> JoinedWork::getFuture() {
  const auto first = works_.front()->getFuture();
  c10::List<c10::intrusive_ptr<Future>> futures(c10::FutureType::create(first->elementType()));
  for (const auto& work : works_) futures.push_back(work->getFuture());
  return c10::collectAll(futures)->then(
      [first](Future& all) {
        if (all.hasError()) std::rethrow_exception(all.exception_ptr());
        return first->value();
      },
      first->elementType());
}

}  // namespace cohort::comm
