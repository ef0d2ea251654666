/// Splits a model whose layers run one after the other into the stages of a pipeline: by counts, by their number of parameters,
/// or by the time that they take.
///
///     auto parts = cohort::pipeline::split_sequential(net, 4);  // even numbers of parameters
///     const auto seconds = cohort::pipeline::measured_costs(net, microbatch);
///     parts = cohort::pipeline::split_sequential(net, cohort::pipeline::balanced_counts(seconds, 4));
///     cohort::PipelineStage stage(parts[rank], rank, 4);
///
/// Parts share the layers with `net`, with the names that they have there: the state dicts of all parts together are that of
/// `net`. A rank keeps its own part and drops `net` and the others.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>

#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/export.h"

namespace cohort::pipeline {

/// Returns parts of `counts[i]` layers each. Throws c10::ValueError unless the counts are positive and add up to the number of
/// layers.
COHORT_API std::vector<torch::nn::Sequential> split_sequential(const torch::nn::Sequential& net,
                                                               const std::vector<int>& counts);
/// Splits by numbers of parameters. Throws c10::ValueError for fewer layers than stages.
COHORT_API std::vector<torch::nn::Sequential> split_sequential(const torch::nn::Sequential& net, int num_stages);

/// Returns the number of layers of each stage, at least one, so that the largest sum of costs is as small as possible. Throws
/// c10::ValueError for fewer layers than stages, and for costs that are negative or NaN.
COHORT_API std::vector<int> balanced_counts(const std::vector<double>& costs, int num_stages);

/// Returns for each layer the number of elements of its parameters.
COHORT_API std::vector<double> parameter_costs(const torch::nn::Sequential& net);

struct MeasureOptions {
  /// Measurements of each layer; the fastest one counts.
  int num_repeats = 5;
  /// The ranks that must get the same numbers. If null, the default group; without one, this process alone.
  Group group = {};
};
/// Returns for each layer the seconds of forward and backward of `microbatch`, as rank 0 of the group measures them. Leaves
/// parameters, gradients and buffers as they were; layers that draw random numbers advance the generator. Collective if there is
/// a group.
COHORT_API std::vector<double> measured_costs(const torch::nn::Sequential& net, const at::Tensor& microbatch,
                                              const MeasureOptions& options = {});

/// The same for a list of blocks of any type: returns the blocks of each stage. Throws as split_sequential.
COHORT_API std::vector<std::vector<size_t>> split_indices(const std::vector<int>& counts, size_t num_layers);
template <class Block>
std::vector<std::vector<Block>> split_blocks(const std::vector<Block>& blocks, const std::vector<int>& counts) {
  std::vector<std::vector<Block>> stages;
  for (const auto& indices : split_indices(counts, blocks.size())) {
    auto& stage = stages.emplace_back();
    for (const size_t index : indices) stage.push_back(blocks[index]);
  }
  return stages;
}

}  // namespace cohort::pipeline

// Old names, until the next release.
namespace cohort {
using pipeline::balanced_counts;
using pipeline::parameter_costs;
using pipeline::split_sequential;
using MeasureOptions [[deprecated("use cohort::pipeline::MeasureOptions")]] = pipeline::MeasureOptions;
using pipeline::measured_costs;
using pipeline::split_blocks;
using pipeline::split_indices;
}  // namespace cohort
