/// Facts about the current worker for code in a dataset, as torch.utils.data.get_worker_info.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <type_traits>
#include <typeinfo>

#include "cohort/export.h"

namespace cohort::data {

namespace detail {

/// The address of a dataset of any type.
struct DatasetAddress {
  void* address = nullptr;
  const std::type_info* type = &typeid(void);
};

}  // namespace detail

struct WorkerInfo {
  int id = 0;
  int num_workers = 0;
  /// Differs between workers and between epochs; with persistent_workers only between workers. Seeds random augmentations.
  int64_t seed = 0;
  /// Seeded with `seed`, and used only by this thread, for LibTorch's random functions, whose default generator all workers
  /// share.
  at::Generator generator = {};
  detail::DatasetAddress dataset_address = {};

  /// The loader's dataset, which workers share; null if it has another type.
  template <typename Dataset>
  Dataset* dataset() const {
    using Plain = std::remove_const_t<Dataset>;
    return *dataset_address.type == typeid(Plain) ? static_cast<Dataset*>(dataset_address.address) : nullptr;
  }
};

/// The current worker; null outside worker threads, so also with num_workers = 0.
COHORT_API const WorkerInfo* worker_info();

}  // namespace cohort::data
