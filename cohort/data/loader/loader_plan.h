/// The options of a DataLoader; LoaderPlan: all of a loader that does not depend on the type of samples.
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
#include "cohort/data/loader/sampler.h"
#include "cohort/export.h"

namespace cohort::data {

struct DataLoaderOptions {
  int64_t batch_size = 1;
  /// Instead of batch_size: the samples that all ranks of the default group take in a step. Each takes an equal part, rounded
  /// down; what is left over is said once.
  std::optional<int64_t> global_batch_size = {};
  /// A new random order each epoch. Not together with `sampler`.
  bool shuffle = false;
  /// The order of samples, such as a DistributedSampler.
  std::shared_ptr<Sampler> sampler = {};
  /// Forms whole batches. Not together with batch_size, shuffle, sampler and drop_last.
  std::shared_ptr<BatchSampler> batch_sampler = {};
  /// Threads that read ahead. 0: read in the caller.
  int num_workers = 0;
  /// Copy batches into pinned memory, from which an accelerator can fetch them while the program goes on.
  bool pin_memory = false;
  /// Give batches on this device of the accelerator. They are copied from pinned memory, in a stream of their own, while the
  /// program works on the batch before; with workers one batch ahead, if it has been read by then.
  std::optional<c10::Device> device = {};
  /// Batches each worker reads ahead; 2 unless given. Only with workers.
  std::optional<int> prefetch_factor = {};
  /// Drop the last batch if it is not full; with an iterable dataset that of each worker.
  bool drop_last = false;
  /// How long to wait for a batch of a worker; 0: for ever.
  std::chrono::milliseconds timeout{0};
  /// False: give batches as they become ready, which need not be the sampler's order.
  bool in_order = true;
  /// Seeds shuffling and workers. Default: LibTorch's default CPU generator, which torch::manual_seed sets.
  std::optional<at::Generator> generator = {};
  /// Called in each worker thread before its first batch: of an epoch, or of all with persistent_workers.
  std::function<void(int worker)> worker_init_fn = {};
  /// Keep the threads from epoch to epoch. Only with workers.
  bool persistent_workers = false;
  /// Leave out samples whose get() throws, instead of ending the loop: a warning tells the first of an epoch, EpochStats counts
  /// them.
  /// Where get_batch() throws, it is asked for each sample alone. What the iterator of an iterable dataset throws is an error.
  bool skip_unreadable = false;
};

namespace detail {

/// What a plan knows of a dataset and its batches.
struct DatasetFacts {
  std::optional<int64_t> size;  ///< nothing for iterable datasets
  bool is_batched = true;
  DatasetAddress address = {};
  VisitTensors visit_batch = nullptr;
  /// Null: the dataset does not ask for numbers of epochs.
  std::function<void(int64_t epoch, EpochBy who)> begin_epoch = {};
};

class COHORT_API LoaderPlan {
 public:
  /// Throws c10::ValueError for options that contradict each other.
  LoaderPlan(DataLoaderOptions options, const DatasetFacts& dataset);

  /// Comes before start(): tells the dataset the number of its epoch, unless set_epoch() has been called.
  void tell_epoch();
  /// As DataLoader::set_epoch().
  void set_epoch(int64_t epoch);

  /// One epoch, without its first `first_batch` batches (they are not read).
  std::unique_ptr<BatchStream> start(ReadBatch read, int64_t first_batch);
  /// Of an iterable dataset; the first batches are read, but not given.
  std::unique_ptr<BatchStream> start(std::function<NextBatch()> begin, int64_t first_batch);

  /// Throws c10::TypeError for iterable datasets.
  int64_t num_batches() const;
  int64_t batch_size() const { return options_.batch_size; }
  bool drops_last() const { return options_.drop_last; }
  /// False without an accelerator.
  bool pins_memory() const { return pins_memory_; }

  /// What batches are collated in.
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
  std::shared_ptr<WorkerThreads> workers_;      ///< persistent ones
  std::shared_ptr<const EpochProgress> epoch_;  ///< the one that began last; null: none has
  int64_t num_left_out_ = 0;                    ///< its first batches, which it did not give
  bool was_ended_ = false;                      ///< it is over, whatever is left of it
  int64_t base_seed_ = 0;
  std::optional<StateDict> loaded_;  ///< for the next epoch
  int64_t num_epochs_ = 0;           ///< that have begun
  bool is_told_ = false;             ///< the dataset knows the number of the next one
  EpochBy says_epochs_ = EpochBy::kCount;
  int64_t num_loaded_ = 0;  ///< batches of it that have been given
};

}  // namespace detail
}  // namespace cohort::data
