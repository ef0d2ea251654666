/// What code in a dataset can ask about the worker it runs on; as torch.utils.data.get_worker_info.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <type_traits>
#include <typeinfo>

#include "cohort/export.h"

namespace cohort::data {

namespace detail {

/// Any dataset.
struct DatasetAddress {
  void* address = nullptr;
  const std::type_info* type = &typeid(void);
};

}  // namespace detail

struct WorkerInfo {
  int id = 0;
  int num_workers = 0;
  /// Differs between workers and between epochs, but with persistent_workers between workers only: seed for random augmentations.
  int64_t seed = 0;
  /// Seeded with `seed`, and this thread's alone: for LibTorch's random functions, whose default generator all workers share.
  at::Generator generator = {};
  detail::DatasetAddress dataset_address = {};

  /// The loader's dataset, which workers share; null if it is of another type.
  template <typename Dataset>
  Dataset* dataset() const {
    using Plain = std::remove_const_t<Dataset>;
    return *dataset_address.type == typeid(Plain) ? static_cast<Dataset*>(dataset_address.address) : nullptr;
  }
};

/// The worker this thread is; null outside worker threads, so also with num_workers = 0.
COHORT_API const WorkerInfo* worker_info();

}  // namespace cohort::data
