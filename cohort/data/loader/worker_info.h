/// What code in a dataset can ask about the worker it runs on; as torch.utils.data.get_worker_info.
#pragma once

#include <cstdint>

#include "cohort/export.h"

namespace cohort::data {

struct WorkerInfo {
  int id = 0;
  int num_workers = 0;
  /// Differs between workers and between epochs, but with persistent_workers between workers only: seed for random augmentations.
  int64_t seed = 0;
};

/// The worker this thread is; null outside worker threads, so also with num_workers = 0.
COHORT_API const WorkerInfo* worker_info();

}  // namespace cohort::data
