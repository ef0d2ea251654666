#include "cohort/parallel/activation/operator_log.h"

#include <memory>
#include <utility>

namespace cohort::activation {
namespace {

thread_local OperatorLog* innermost_log = nullptr;

}  // namespace

OperatorLog::OperatorLog(bool is_enabled) : is_enabled_(is_enabled) {
  if (!is_enabled_) return;
  outer_ = std::exchange(innermost_log, this);
  // One callback records into all logs of the thread.
  if (!outer_) {
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&write_down).scopes({at::RecordScope::FUNCTION}));
  }
}

OperatorLog::~OperatorLog() {
  if (!is_enabled_) return;
  if (!outer_) at::removeCallback(handle_);
  innermost_log = outer_;
}

std::unique_ptr<at::ObserverContext> OperatorLog::write_down(const at::RecordFunction& function) {
  for (auto* log = innermost_log; log; log = log->outer_) log->operators_.emplace_back(function.name());
  return nullptr;
}

}  // namespace cohort::activation
