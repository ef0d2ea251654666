#include "cohort/data/loader/batch_source.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "cohort/base/log/log.h"
#include "cohort/comm/error/exception_text.h"

namespace cohort::data::detail {

void ReadProgress::begin_sample(int64_t index) {
  // Relaxed, as it only asks for an early end; the stream's mutex hands over the results.
  if (should_stop_ && should_stop_->load(std::memory_order_relaxed)) throw StopReading();
  sample_ = index;
}

void ReadProgress::skip(const std::exception& reason) {
  if (num_skipped_->fetch_add(1, std::memory_order_relaxed) > 0) return;
  base::warn_once(
      c10::str("DataLoader leaves out samples that cannot be read, as skip_unreadable asks for; the first is sample ",
               sample_, ": ", comm::text_of(reason)));
}

BatchSource::~BatchSource() = default;

std::shared_ptr<void> MapSource::read(int /*worker*/, int64_t step, ReadProgress& progress) {
  if (step >= static_cast<int64_t>(batches_.size())) return nullptr;
  return read_(batches_[static_cast<size_t>(step)], progress);
}

std::string MapSource::describe(int64_t step, const ReadProgress& progress) const {
  if (progress.sample() >= 0) return c10::str("read sample ", progress.sample());
  const auto& indices = batches_[static_cast<size_t>(step)];
  if (indices.empty()) return "collate a batch without samples";
  auto text = c10::str("collate the ", indices.size(), " samples of a batch\n  samples:");
  for (size_t i = 0; i < indices.size() && i <= 8; ++i) text += i < 8 ? c10::str(" ", indices[i]) : " ...";
  return text;
}

IterableSource::IterableSource(int num_workers, std::function<NextBatch()> begin)
    : begin_(std::move(begin)), next_of_worker_(static_cast<size_t>(std::max(num_workers, 1))) {}

std::shared_ptr<void> IterableSource::read(int worker, int64_t /*step*/, ReadProgress& progress) {
  auto& next = next_of_worker_[static_cast<size_t>(worker)];
  if (!next) next = begin_();
  return next(progress);
}

std::string IterableSource::describe(int64_t /*step*/, const ReadProgress& progress) const {
  return progress.sample() < 0 ? "collate a batch" : c10::str("read sample ", progress.sample(), " of its iterator");
}

}  // namespace cohort::data::detail
