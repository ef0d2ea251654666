/// DataLoaderOptions, and LoaderPlan: the part of a loader that does not depend on the type of samples.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "cohort/data/datasets/dataset.h"
#include "cohort/data/loader/batch_memory.h"
#include "cohort/data/loader/batch_stream.h"
#include "cohort/data/samplers/sampler.h"
#include "cohort/export.h"

namespace cohort::data {

struct DataLoaderOptions {
  int64_t batch_size = 1;
  /// Replaces batch_size: the number of samples that all ranks of the default group take in a step. Each rank takes an equal
  /// number, rounded down; warns once if there is a remainder.
  std::optional<int64_t> global_batch_size = {};
  /// Shuffles in each epoch. Excludes `sampler`.
  bool shuffle = false;
  /// The order of samples, such as a DistributedSampler.
  std::shared_ptr<Sampler> sampler = {};
  /// Forms whole batches. Excludes batch_size, shuffle, sampler and drop_last.
  std::shared_ptr<BatchSampler> batch_sampler = {};
  /// Threads that read ahead. 0 means that the caller reads.
  int num_workers = 0;
  /// Copies batches into pinned memory, from which an accelerator can copy them while the program continues.
  bool pin_memory = false;
  /// Returns batches on this device, an accelerator. They are copied from pinned memory, in a separate stream, while the program
  /// works on the batch before. With workers one batch is copied ahead, if it has been read by then.
  std::optional<c10::Device> device = {};
  /// Batches that each worker reads ahead; 2 by default. Only with workers.
  std::optional<int> prefetch_factor = {};
  /// Drops the last batch if it is not full; with an iterable dataset the last one of each worker.
  bool drop_last = false;
  /// How long to wait for a batch of a worker. 0 means no limit.
  std::chrono::milliseconds timeout{0};
  /// If false, returns batches as soon as they are ready, which need not be the sampler's order.
  bool in_order = true;
  /// Seeds shuffling and workers. Default: LibTorch's default CPU generator, which torch::manual_seed sets.
  std::optional<at::Generator> generator = {};
  /// Called in each worker thread before its first batch of an epoch; with persistent_workers only in the first epoch.
  std::function<void(int worker)> worker_init_fn = {};
  /// Keeps the threads from epoch to epoch. Only with workers.
  bool persistent_workers = false;
  /// Leaves out samples whose get() throws, instead of ending the loop. Warns about the first one of an epoch; EpochStats counts
  /// them. If get_batch() throws, reads its samples one by one. An exception of an iterable dataset's iterator always ends the
  /// loop.
  bool skip_unreadable = false;
};

namespace detail {

/// Properties of a dataset and its batches that a plan needs.
struct DatasetFacts {
  std::optional<int64_t> size;  ///< absent for iterable datasets
  bool is_batched = true;
  DatasetAddress address = {};
  VisitTensors visit_batch = nullptr;
  /// If null, the dataset does not need epoch numbers.
  std::function<void(int64_t epoch, EpochBy who)> begin_epoch = {};
};

class COHORT_API LoaderPlan {
 public:
  /// Throws c10::ValueError for options that contradict each other.
  LoaderPlan(DataLoaderOptions options, const DatasetFacts& dataset);

  /// Tells the dataset the number of its epoch, unless set_epoch() has been called. Call it before start().
  void tell_epoch();
  /// See DataLoader::set_epoch().
  void set_epoch(int64_t epoch);

  /// Begins an epoch without its first `first_batch` batches, which are not read.
  std::unique_ptr<BatchStream> start(ReadBatch read, int64_t first_batch);
  /// Begins an epoch of an iterable dataset; reads the first batches, but drops them.
  std::unique_ptr<BatchStream> start(std::function<NextBatch()> begin, int64_t first_batch);

  /// Throws c10::TypeError for iterable datasets.
  int64_t num_batches() const;
  int64_t batch_size() const { return options_.batch_size; }
  bool drops_last() const { return options_.drop_last; }
  /// False without an accelerator.
  bool pins_memory() const { return pins_memory_; }

  /// The memory for collated batches.
  const std::shared_ptr<BatchMemory>& memory() const { return memory_; }

  void end_epoch() { was_ended_ = true; }
  StateDict state_dict() const;
  void load_state_dict(const StateDict& state);
  EpochStats stats() const;

 private:
  std::unique_ptr<BatchStream> begin_epoch(std::unique_ptr<BatchSource> source, int64_t num_left_out);
  std::shared_ptr<WorkerThreads> lease_workers();
  int64_t next_base_seed();

  DataLoaderOptions options_;
  DatasetFacts dataset_;
  bool is_iterable_;
  bool pins_memory_;
  std::shared_ptr<BatchMemory> memory_;
  std::shared_ptr<BatchSampler> batch_sampler_;
  std::shared_ptr<WorkerThreads> workers_;      ///< persistent workers
  std::shared_ptr<const EpochProgress> epoch_;  ///< the current epoch; null before the first one
  int64_t num_left_out_ = 0;                    ///< its first batches, which it left out
  bool was_ended_ = false;                      ///< end_epoch() has ended it
  int64_t base_seed_ = 0;
  std::optional<StateDict> loaded_;  ///< state for the next epoch
  int64_t num_epochs_ = 0;           ///< epochs that have begun
  bool is_told_ = false;             ///< whether the dataset knows the number of the next epoch
  EpochBy says_epochs_ = EpochBy::kCount;
  int64_t num_loaded_ = 0;  ///< batches of it that have been returned
};

}  // namespace detail
}  // namespace cohort::data
