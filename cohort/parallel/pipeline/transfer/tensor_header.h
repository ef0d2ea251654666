/// A message of fixed size with the facts that a stage must know about tensors before they come.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/export.h"

namespace cohort::pipeline {

struct TensorMeta {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  bool requires_grad = false;

  bool operator==(const TensorMeta& other) const {
    return dtype == other.dtype && sizes == other.sizes && requires_grad == other.requires_grad;
  }
};
using TensorMetas = std::vector<TensorMeta>;

size_t bytes_of(const TensorMeta& meta);

/// The number of 64-bit integers of a header, whatever its contents.
inline constexpr int64_t kHeaderLength = 256;

COHORT_TEST_API TensorMetas metas_of(const TensorList& tensors);
/// Describes each as `float32 [4, 16]`, for messages.
COHORT_TEST_API std::string text_of(const TensorMetas& metas);
/// Returns a header on the CPU. Throws c10::ValueError for more than a header can hold: about 30 tensors of 4 dimensions.
COHORT_TEST_API at::Tensor write_header(const TensorMetas& metas);
/// Says instead that this rank has failed, and no tensors will come.
COHORT_TEST_API at::Tensor failure_header();
struct Announcement {
  TensorMetas metas;
  bool has_failed = false;
};
/// Throws c10::DistBackendError for a header that no stage of ours has written: checks everything before using it.
COHORT_TEST_API Announcement read_header(const at::Tensor& header);

}  // namespace cohort::pipeline
