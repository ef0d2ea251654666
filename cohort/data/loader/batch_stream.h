/// BatchStream is the untyped half of DataLoader: it reads the batches of one epoch, on worker threads or in the caller,
/// and hands them out in order. What a batch is, it does not know.
///
/// With W workers, batch i is read by worker i % W (as in PyTorch), and at most W * prefetch_factor batches are being
/// read or wait to be taken, so memory is bounded however slow the consumer is.
///
/// Thread-safety: next() belongs to one thread at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cohort/export.h"

namespace cohort::data {

/// What a dataset's get() can ask about the thread it runs on.
struct WorkerInfo {
  int id = 0;
  int num_workers = 0;
  /// Differs between workers and between epochs: seed for random augmentations.
  int64_t seed = 0;
};

/// The worker this thread is; null outside worker threads, so also with num_workers = 0.
COHORT_API const WorkerInfo* worker_info();

namespace detail {

/// Passed to the function that reads a batch, so that an error can name the example and a stop is seen soon.
class COHORT_API ReadProgress {
 public:
  explicit ReadProgress(const std::atomic<bool>* should_stop) : should_stop_(should_stop) {}
  /// Must be called before each example is read. Throws StopReading when nobody wants the batch any more.
  void begin_sample(int64_t index);
  /// Call after the last example: errors from here on concern the whole batch.
  void begin_collate() { sample_ = -1; }
  int64_t sample() const { return sample_; }

 private:
  const std::atomic<bool>* should_stop_;
  int64_t sample_ = -1;
};

using ReadBatch = std::function<std::shared_ptr<void>(const std::vector<int64_t>& indices, ReadProgress& progress)>;

struct StreamOptions {
  int num_workers = 0;
  int prefetch_factor = 2;
  std::chrono::milliseconds timeout{0};
  bool in_order = true;
  int64_t base_seed = 0;
  std::function<void(int worker)> worker_init;
};

class COHORT_API BatchStream {
 public:
  BatchStream(std::vector<std::vector<int64_t>> batches, ReadBatch read, StreamOptions options);
  /// Blocks until each worker has finished the example it is reading.
  ~BatchStream();
  BatchStream(const BatchStream&) = delete;
  BatchStream& operator=(const BatchStream&) = delete;

  /// The next batch; null at the end of the epoch. Throws the error of the thread that read the batch, after which the
  /// following batches can still be taken; c10::Error when the time-out passes.
  std::shared_ptr<void> next();

 private:
  struct State;
  std::shared_ptr<void> read_here();
  std::unique_ptr<State> state_;
};

}  // namespace detail
}  // namespace cohort::data
