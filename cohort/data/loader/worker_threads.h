/// WorkerThreads: the threads of a DataLoader, for one epoch or, with persistent_workers, for all epochs.
///
/// Thread-safety: lease(), start() and wait() belong to one thread at a time.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "cohort/data/loader/worker_info.h"
#include "cohort/export.h"

namespace cohort::data::detail {

class COHORT_API WorkerThreads {
 public:
  /// A worker's work in an epoch. `init_error`: the error of worker_init, which is called once in each thread.
  using Job = std::function<void(const WorkerInfo& info, const std::exception_ptr& init_error)>;

  /// `dataset`: for worker_info(). Throws c10::Error if the system does not start enough threads.
  WorkerThreads(int num_workers, std::function<void(int worker)> worker_init, DatasetAddress dataset);
  /// Waits for the jobs.
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  /// Returns false if another epoch is using them.
  bool lease();
  /// Runs the job in each thread. The first call sets the workers' seeds: base_seed + id.
  void start(Job job, int64_t base_seed);
  /// Waits until each thread has ended the job. They can then be leased again.
  void wait();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

/// Rethrows the current exception with the LibTorch type that it has, and the text that `story` makes from its own.
[[noreturn]] COHORT_API void rethrow_with_story(const std::function<std::string(const std::string& reason)>& story);

}  // namespace cohort::data::detail
