/// Splits a step's extra inputs, StepOptions::kwargs and loss_kwargs, into microbatches.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <vector>

#include "cohort/parallel/pipeline/microbatches.h"
#include "cohort/parallel/pipeline/transfer/tensor_header.h"

namespace cohort::pipeline {

/// Whether `tensor` can be split so.
inline bool can_be_split(const at::Tensor& tensor, int num_microbatches, int64_t dim) {
  return dim >= -tensor.dim() && dim < tensor.dim() && tensor.size(dim) >= num_microbatches;
}

/// As split_into_microbatches(), but the list may be empty, and undefined tensors go to each microbatch. `name`: the member of
/// StepOptions, for errors.
inline std::vector<TensorList> split_extra_inputs(const std::string& name, const TensorList& tensors,
                                                  int num_microbatches, std::vector<TensorChunkSpec> specs) {
  if (tensors.empty()) return std::vector<TensorList>(static_cast<size_t>(num_microbatches));
  TORCH_CHECK_VALUE(specs.empty() || specs.size() == tensors.size(), "[cohort] pipeline: StepOptions::", name, " has ",
                    tensors.size(), tensors.size() == 1 ? " tensor" : " tensors", ", but PipelineOptions::", name,
                    "_chunk_spec has ", specs.size());
  specs.resize(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) specs[i] = TensorChunkSpec::replicate();
    TORCH_CHECK_VALUE(
        specs[i].is_replicated || can_be_split(tensors[i], num_microbatches, specs[i].split_dim),
        "[cohort] pipeline: StepOptions::", name, "[", i, "] is ", text_of(metas_of({tensors[i]})),
        ", which cannot be split along dimension ", specs[i].split_dim, " into ", num_microbatches,
        " microbatches\n  hint: to give each of them all of it, set TensorChunkSpec::replicate() in PipelineOptions::",
        name, "_chunk_spec");
  }
  return split_into_microbatches(tensors, num_microbatches, specs);
}

/// Detaches the tensor from all graphs: the result of backward must not depend on whether a schedule splits it.
inline at::Tensor extra_input_on(c10::Device device, const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().to(device) : tensor;
}

}  // namespace cohort::pipeline
