#include "cohort/parallel/ddp/engines/step_times.h"

#include <algorithm>
#include <utility>

namespace cohort::ddp {
namespace {

constexpr int64_t kNumFirstNoted = 10;

int64_t nanoseconds_since_epoch() {
  return std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

void StepTimes::set_buckets(size_t count) {
  buckets_.assign(count, {});
  bucket_sums_.assign(count, {});
  num_noted_of_buckets_ = 0;
}

void StepTimes::begin_forward() {
  const int64_t next = num_steps_ + 1;
  is_noted_ = next <= kNumFirstNoted || next % sample_rate_ == 0;
  if (!is_noted_) return;
  forward_begin_ = Clock::now();
  step_ = {.forward_begin = nanoseconds_since_epoch()};
  std::fill(buckets_.begin(), buckets_.end(), Bucket{});
  order_.clear();
}

void StepTimes::begin_step() { ++num_steps_; }

void StepTimes::gradient(size_t parameter) {
  if (!is_noted_) return;
  if (step_.backward_begin == 0) step_.backward_begin = now();
  order_.push_back(parameter);
}

void StepTimes::ready(size_t bucket) {
  if (!is_noted_) return;
  buckets_[bucket].ready = now();
  step_.compute_end = buckets_[bucket].ready;
}

void StepTimes::launched(size_t bucket) {
  if (!is_noted_) return;
  buckets_[bucket].launched = now();
  if (step_.comm_begin == 0) step_.comm_begin = buckets_[bucket].launched;
}

void StepTimes::finished(size_t bucket) {
  if (!is_noted_) return;
  auto& times = buckets_[bucket];
  if (times.finished != 0) return;
  times.finished = now();
  // Buckets are awaited one after the other: the time until the bucket before it was finished counts for that bucket.
  times.exposed = std::max<int64_t>(0, times.finished - std::max({step_.compute_end, step_.comm_end, times.launched}));
  step_.comm_end = times.finished;
}

void StepTimes::end_step() {
  if (!std::exchange(is_noted_, false)) return;
  if (step_.comm_end > 0) step_.overlap = std::max<int64_t>(0, step_.compute_end - step_.comm_begin);
  last_ = step_;
  last_number_ = num_steps_;
  last_order_ = order_;
  ++num_noted_;
  sum_.backward_begin += step_.backward_begin;
  sum_.compute_end += step_.compute_end;
  sum_.comm_begin += step_.comm_begin;
  sum_.comm_end += step_.comm_end;
  sum_.overlap += step_.overlap;
  ++num_noted_of_buckets_;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    bucket_sums_[i].ready += buckets_[i].ready;
    bucket_sums_[i].launched += buckets_[i].launched;
    bucket_sums_[i].finished += buckets_[i].finished;
    bucket_sums_[i].exposed += buckets_[i].exposed;
  }
}

}  // namespace cohort::ddp
