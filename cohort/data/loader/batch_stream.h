/// BatchStream is the untyped half of an epoch: it reads the batches of a BatchSource, on worker threads or in the caller, and
/// hands them out in order.
///
/// With W workers, batch i is read by worker i % W (as in PyTorch), and at most W * prefetch_factor batches are being read or
/// wait to be taken, so memory is bounded however slow the consumer is. A worker whose source has ended is passed by.
///
/// For a device, a batch is copied in a stream of its own: as soon as the one before it is handed out, if it has been read by
/// then.
///
/// Thread-safety: next() belongs to one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cohort/data/loader/batch_source.h"
#include "cohort/data/loader/device_copies.h"
#include "cohort/data/loader/worker_threads.h"
#include "cohort/export.h"

namespace cohort::data {

/// How an epoch goes.
struct EpochStats {
  int64_t num_batches = 0;                 ///< that have been taken
  std::optional<int64_t> num_left = {};    ///< that are still to come, at most; nothing for iterable datasets
  int64_t num_skipped = 0;                 ///< samples that could not be read, where skip_unreadable leaves them out
  std::chrono::nanoseconds last_wait{0};   ///< what the last step has waited for its batch
  std::chrono::nanoseconds total_wait{0};  ///< what all steps have
  std::chrono::nanoseconds total{0};       ///< from the beginning of the epoch to the last batch
};

namespace detail {

struct StreamOptions {
  int num_workers = 0;
  int prefetch_factor = 2;
  std::chrono::milliseconds timeout{0};
  bool in_order = true;
  int64_t base_seed = 0;
  bool skips_unreadable = false;
  bool reads_all_samples = false;  ///< on each of several ranks: see comm/group/unshared_batches.h
};

/// Outlives its stream.
struct EpochProgress {
  EpochStats stats;
  bool is_over = false;
};

class COHORT_API BatchStream {
 public:
  /// `workers`: leased, as many as the options say; null if they say 0. The stream's end gives them back.
  /// `copies`: to the device that batches are wanted on; null: they stay where they are.
  BatchStream(std::unique_ptr<BatchSource> source, StreamOptions options, std::shared_ptr<WorkerThreads> workers,
              std::unique_ptr<DeviceCopies> copies = nullptr);
  /// Blocks until each worker has finished the sample it is reading.
  ~BatchStream();
  BatchStream(const BatchStream&) = delete;
  BatchStream& operator=(const BatchStream&) = delete;

  /// The next batch; null at the end of the epoch. Throws the error of the thread that read the batch, after which the
  /// following batches can still be taken; c10::Error when the time-out passes.
  std::shared_ptr<void> next();
  /// Reads batches that nobody gets, for sources that cannot begin in the middle. Fewer if the source has no more.
  void discard(int64_t num_batches);
  const std::shared_ptr<const EpochProgress>& progress() const { return shared_progress_; }

 private:
  struct State;
  std::shared_ptr<void> read_here();
  std::shared_ptr<void> take();
  std::shared_ptr<void> take_on_device();

  const std::unique_ptr<State> state_;
  const std::chrono::steady_clock::time_point begin_;
  const std::shared_ptr<EpochProgress> progress_;
  const std::shared_ptr<const EpochProgress> shared_progress_;
};

/// What to say at the end of an epoch that has waited much for its data; empty: nothing.
COHORT_API std::string advice_on_workers(const EpochStats& stats, int num_workers, int num_cores);

}  // namespace detail
}  // namespace cohort::data
