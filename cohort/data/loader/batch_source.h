/// BatchSource: where the batches of an epoch come from, step by step. Untyped: what a batch is, it does not know.
///
/// With W workers, worker w reads the steps w, w + W, ... in this order; where order is free, whichever comes next.
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

/// Thrown through datasets when nobody wants the batch any more.
struct StopReading {};
/// Thrown when no sample of a batch could be read: it is left out.
struct NothingRead {};

/// Passed to what reads a batch, so that an error can name the sample and a stop is seen soon.
class COHORT_API ReadProgress {
 public:
  /// `should_stop`: null: never. `num_skipped`: counts samples that cannot be read; null: they are errors.
  explicit ReadProgress(const std::atomic<bool>* should_stop, std::atomic<int64_t>* num_skipped = nullptr)
      : should_stop_(should_stop), num_skipped_(num_skipped) {}
  /// Must be called before each sample is read. Throws StopReading.
  void begin_sample(int64_t index);
  /// Call after the last sample: errors from here on concern the whole batch.
  void begin_collate() { sample_ = -1; }
  int64_t sample() const { return sample_; }

  bool skips() const { return num_skipped_ != nullptr; }
  /// The sample that has begun last cannot be read for this reason. Warns of the first of an epoch.
  void skip(const std::exception& reason);

 private:
  const std::atomic<bool>* should_stop_;
  std::atomic<int64_t>* num_skipped_;
  int64_t sample_ = -1;
};

class COHORT_API BatchSource {
 public:
  virtual ~BatchSource();
  /// The batch of `step`; null: there is none, and none follows for `worker`. A worker is one thread at a time; several read at
  /// once.
  virtual std::shared_ptr<void> read(int worker, int64_t step, ReadProgress& progress) = 0;
  /// Nothing: nobody knows before the last one.
  virtual std::optional<int64_t> num_batches() const = 0;
  /// What an error in `step` has stopped: "read sample 7".
  virtual std::string describe(int64_t step, const ReadProgress& progress) const = 0;
};

using ReadBatch = std::function<std::shared_ptr<void>(const std::vector<int64_t>& indices, ReadProgress& progress)>;

/// Batches whose samples are known beforehand.
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

/// Batches that come one after the other until there are no more. Each worker has an iterator of its own, made in its thread.
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
