#include "cohort/parallel/data_parallel/gather_log.h"

#include <utility>

namespace cohort::nn::parallel {
namespace {

thread_local GatherLog* current_log = nullptr;

}  // namespace

GatherLog::GatherLog() : before_(std::exchange(current_log, this)) {}

GatherLog::~GatherLog() { current_log = before_; }

void GatherLog::note(const at::Tensor& joined) {
  if (current_log) current_log->tensors_.push_back(joined);
}

}  // namespace cohort::nn::parallel
