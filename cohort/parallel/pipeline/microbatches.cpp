#include "cohort/parallel/pipeline/microbatches.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor_split.h>
#include <c10/util/Exception.h>

namespace cohort::pipeline {
namespace {

TensorList chunks_of(const at::Tensor& tensor, int num_microbatches, const TensorChunkSpec& spec) {
  const auto count = static_cast<size_t>(num_microbatches);
  if (spec.is_replicated) return TensorList(count, tensor);
  TORCH_CHECK_VALUE(tensor.dim() > 0,
                    "[cohort] pipeline: a tensor without dimensions cannot be split into microbatches\n"
                    "  hint: use TensorChunkSpec::replicate() to give it to each of them");
  const int64_t size = tensor.size(spec.split_dim);
  TORCH_CHECK_VALUE(size >= num_microbatches, "[cohort] Tensor size ", size,
                    " is smaller than num_chunks\n  hint: dimension ", spec.split_dim, " is split into ",
                    num_microbatches, " microbatches; use fewer of them, or a larger batch");
  return at::tensor_split(tensor, num_microbatches, spec.split_dim);
}

at::Tensor merged(const std::vector<TensorList>& microbatches, size_t index, const MergeSpec& spec) {
  TensorList chunks;
  for (const TensorList& each : microbatches) chunks.push_back(each[index]);
  if (!spec.reduce) return at::cat(chunks, spec.cat_dim);
  at::Tensor result = spec.initial;
  for (const at::Tensor& chunk : chunks) result = spec.reduce(result, chunk);
  return result;
}

}  // namespace

std::vector<TensorList> split_into_microbatches(const TensorList& tensors, int num_microbatches,
                                                const std::vector<TensorChunkSpec>& specs) {
  TORCH_CHECK_VALUE(specs.empty() || specs.size() == tensors.size(), "[cohort] pipeline: ", tensors.size(),
                    " inputs were given, but ", specs.size(), " chunk specs");
  std::vector<TensorList> result(static_cast<size_t>(num_microbatches));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto chunks = chunks_of(tensors[i], num_microbatches, specs.empty() ? TensorChunkSpec() : specs[i]);
    for (size_t microbatch = 0; microbatch < result.size(); ++microbatch) {
      result[microbatch].push_back(chunks[microbatch]);
    }
  }
  return result;
}

TensorList merge_microbatches(const std::vector<TensorList>& microbatches, const std::vector<MergeSpec>& specs) {
  TensorList result;
  if (microbatches.empty()) return result;
  const size_t num_outputs = microbatches.front().size();
  TORCH_CHECK_VALUE(specs.empty() || specs.size() == num_outputs, "[cohort] pipeline: the last stage returns ",
                    num_outputs, " tensors, but ", specs.size(), " merge specs were given");
  for (const TensorList& each : microbatches) {
    TORCH_CHECK_VALUE(each.size() == num_outputs, "[cohort] pipeline: microbatch 0 returned ", num_outputs,
                      " tensors, and another one returned ", each.size());
  }
  for (size_t i = 0; i < num_outputs; ++i) {
    result.push_back(merged(microbatches, i, specs.empty() ? MergeSpec() : specs[i]));
  }
  return result;
}

}  // namespace cohort::pipeline
