/// BatchSource: reads the batches of an epoch, step by step, without knowing their type.
///
/// With W workers, worker w reads the steps w, w + W, ... in this order; if order is free, it reads the next step.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/export.h"

namespace cohort::data::detail {

/// Thrown through datasets if the batch is no longer needed.
struct StopReading {};
/// Thrown if no sample of a batch could be read. The batch is then left out.
struct NothingRead {};

/// Passed to functions that read a batch, so that errors can name the sample and reading stops early.
class COHORT_API ReadProgress {
 public:
  /// `should_stop`: if null, never stops. `num_skipped`: counts samples that cannot be read; if null, they are errors.
  explicit ReadProgress(const std::atomic<bool>* should_stop, std::atomic<int64_t>* num_skipped = nullptr)
      : should_stop_(should_stop), num_skipped_(num_skipped) {}
  /// Call it before each sample. Throws StopReading.
  void begin_sample(int64_t index);
  /// Call it after the last sample: later errors concern the whole batch.
  void begin_collate() { sample_ = -1; }
  int64_t sample() const { return sample_; }

  bool skips() const { return num_skipped_ != nullptr; }
  /// Skips the current sample, which cannot be read for this reason. Warns about the first one of an epoch.
  void skip(const std::exception& reason);

 private:
  const std::atomic<bool>* should_stop_;
  std::atomic<int64_t>* num_skipped_;
  int64_t sample_ = -1;
};

class COHORT_API BatchSource {
 public:
  virtual ~BatchSource();
  /// Returns the batch of `step`; null if `worker` has no more batches. A worker is one thread at a time; several workers read
  /// concurrently.
  virtual std::shared_ptr<void> read(int worker, int64_t step, ReadProgress& progress) = 0;
  /// Absent if the number is not known before the last batch.
  virtual std::optional<int64_t> num_batches() const = 0;
  /// Describes what an error in `step` has stopped: "read sample 7".
  virtual std::string describe(int64_t step, const ReadProgress& progress) const = 0;
};

using ReadBatch = std::function<std::shared_ptr<void>(const std::vector<int64_t>& indices, ReadProgress& progress)>;

/// Reads batches whose samples are known in advance.
class COHORT_API MapSource final : public BatchSource {
 public:
  MapSource(std::vector<std::vector<int64_t>> batches, ReadBatch read)
      : batches_(std::move(batches)), read_(std::move(read)) {}
  std::shared_ptr<void> read(int worker, int64_t step, ReadProgress& progress) override;
  std::optional<int64_t> num_batches() const override { return static_cast<int64_t>(batches_.size()); }
  std::string describe(int64_t step, const ReadProgress& progress) const override;

 private:
  const std::vector<std::vector<int64_t>> batches_;
  const ReadBatch read_;
};

using NextBatch = std::function<std::shared_ptr<void>(ReadProgress& progress)>;

/// Reads batches one after the other until there are no more. Each worker makes its own iterator in its thread.
class COHORT_API IterableSource final : public BatchSource {
 public:
  IterableSource(int num_workers, std::function<NextBatch()> begin);
  std::shared_ptr<void> read(int worker, int64_t step, ReadProgress& progress) override;
  std::optional<int64_t> num_batches() const override { return std::nullopt; }
  std::string describe(int64_t step, const ReadProgress& progress) const override;

 private:
  const std::function<NextBatch()> begin_;
  std::vector<NextBatch> next_of_worker_;
};

}  // namespace cohort::data::detail
