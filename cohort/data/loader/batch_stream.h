/// BatchStream: the untyped half of an epoch. Reads the batches of a BatchSource, on worker threads or in the caller, and returns
/// them in order.
///
/// With W workers, worker i % W reads batch i (as in PyTorch), and at most W * prefetch_factor batches are being read or wait to
/// be taken, so memory is bounded however slow the consumer is. The stream skips a worker whose source has ended.
///
/// For a device, copies each batch in a separate stream, beginning when the batch before it is handed out, if it has been read by
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

/// The progress of an epoch.
struct EpochStats {
  int64_t num_batches = 0;                 ///< batches that have been taken
  std::optional<int64_t> num_left = {};    ///< batches that are left, at most; absent for iterable datasets
  int64_t num_skipped = 0;                 ///< samples that could not be read and were left out (skip_unreadable)
  std::chrono::nanoseconds last_wait{0};   ///< how long the last step waited for its batch
  std::chrono::nanoseconds total_wait{0};  ///< how long all steps waited
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
  bool reads_all_samples = false;  ///< each of several ranks does: see comm/group/unshared_batches.h
};

/// The part of a stream that outlives it.
struct EpochProgress {
  EpochStats stats;
  bool is_over = false;
};

class COHORT_API BatchStream {
 public:
  /// `workers`: leased, as many as the options say; null for 0 workers. The destructor returns them. `copies`: copies batches to
  /// a device; if null, batches stay on theirs.
  BatchStream(std::unique_ptr<BatchSource> source, StreamOptions options, std::shared_ptr<WorkerThreads> workers,
              std::unique_ptr<DeviceCopies> copies = nullptr);
  /// Blocks until each worker has finished its current sample.
  ~BatchStream();
  BatchStream(const BatchStream&) = delete;
  BatchStream& operator=(const BatchStream&) = delete;

  /// Returns the next batch; null at the end of the epoch. Throws the error of the thread that read the batch, after which the
  /// following batches can still be taken; c10::Error after the timeout.
  std::shared_ptr<void> next();
  /// Reads and drops batches, for sources that cannot begin in the middle. Drops fewer if the source has no more.
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

/// Returns a hint at the end of an epoch that has waited long for its data, else an empty text.
COHORT_API std::string advice_on_workers(const EpochStats& stats, int num_workers, int num_cores);

}  // namespace detail
}  // namespace cohort::data
