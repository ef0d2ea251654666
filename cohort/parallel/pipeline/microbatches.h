/// Splits a batch into microbatches, and merges the last stage's outputs. As torch/distributed/pipelining/microbatch.py: uses
/// tensor_split along a dimension, so the last ones may be smaller.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/export.h"

namespace cohort {

/// How one input is split.
struct TensorChunkSpec {
  int64_t split_dim = 0;
  /// Gives each microbatch the full tensor.
  bool is_replicated = false;

  static TensorChunkSpec replicate() { return {0, true}; }
};

/// How one output is merged: concatenated along a dimension, or reduced one after the other, for example a loss per microbatch.
struct MergeSpec {
  int64_t cat_dim = 0;
  std::function<at::Tensor(const at::Tensor& sum_so_far, const at::Tensor& chunk)> reduce = {};
  at::Tensor initial = {};

  static MergeSpec reduced(at::Tensor initial, std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> reduce) {
    return {0, std::move(reduce), std::move(initial)};
  }
};

}  // namespace cohort

namespace cohort::pipeline {

/// Returns each microbatch's tensors. `specs`: one per tensor; if empty, dimension 0 for each. Throws c10::ValueError for tensors
/// that are too small for this number, and for another number of specs.
COHORT_API std::vector<TensorList> split_into_microbatches(const TensorList& tensors, int num_microbatches,
                                                           const std::vector<TensorChunkSpec>& specs = {});

/// Merges the tensors of all microbatches. Throws c10::ValueError for microbatches with different numbers of tensors, and for
/// another number of specs.
COHORT_API TensorList merge_microbatches(const std::vector<TensorList>& microbatches,
                                         const std::vector<MergeSpec>& specs = {});

}  // namespace cohort::pipeline

// Old names, until the next release.
namespace cohort {
using pipeline::merge_microbatches;
using pipeline::split_into_microbatches;
}  // namespace cohort
