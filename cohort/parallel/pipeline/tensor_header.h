/// What a stage has to know of the tensors that come before they come: a message of fixed size.
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

/// 64-bit integers of a header, whatever it tells.
inline constexpr int64_t kHeaderLength = 256;

COHORT_TEST_API TensorMetas metas_of(const TensorList& tensors);
/// `float32 [4, 16]` of each, for messages.
COHORT_TEST_API std::string text_of(const TensorMetas& metas);
/// On the CPU. Throws c10::ValueError for more than a header can tell: about 30 tensors of 4 dimensions.
COHORT_TEST_API at::Tensor write_header(const TensorMetas& metas);
/// Instead: this rank has failed, and no tensors will come.
COHORT_TEST_API at::Tensor failure_header();
struct Announcement {
  TensorMetas metas;
  bool has_failed = false;
};
/// Throws c10::DistBackendError for what no stage of ours has written: nothing that it says is believed before it has been
/// checked.
COHORT_TEST_API Announcement read_header(const at::Tensor& header);

}  // namespace cohort::pipeline
