/// What a step is given beside inputs and target: StepOptions::kwargs and loss_kwargs, in microbatches.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <vector>

#include "cohort/parallel/pipeline/microbatches.h"
#include "cohort/parallel/pipeline/tensor_header.h"

namespace cohort::pipeline {

/// Whether `tensor` can be cut so.
inline bool can_be_cut(const at::Tensor& tensor, int num_microbatches, int64_t dim) {
  return dim >= -tensor.dim() && dim < tensor.dim() && tensor.size(dim) >= num_microbatches;
}

/// As split_into_microbatches(), but a rank may have no tensors, and undefined ones are given to each microbatch. `name`: of
/// StepOptions' member, for errors.
inline std::vector<TensorList> split_extra_inputs(const std::string& name, const TensorList& tensors,
                                                  int num_microbatches, std::vector<TensorChunkSpec> specs) {
  if (tensors.empty()) return std::vector<TensorList>(static_cast<size_t>(num_microbatches));
  TORCH_CHECK_VALUE(specs.empty() || specs.size() == tensors.size(), "[cohort] pipeline: StepOptions::", name, " has ",
                    tensors.size(), tensors.size() == 1 ? " tensor" : " tensors", ", but PipelineOptions::", name,
                    "_chunk_spec has ", specs.size());
  specs.resize(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) specs[i] = TensorChunkSpec::replicate();
    TORCH_CHECK_VALUE(specs[i].is_replicated || can_be_cut(tensors[i], num_microbatches, specs[i].split_dim),
                      "[cohort] pipeline: StepOptions::", name, "[", i, "] is ", text_of(metas_of({tensors[i]})),
                      ", which cannot be cut along dimension ", specs[i].split_dim, " into ", num_microbatches,
                      " microbatches\n  hint: with TensorChunkSpec::replicate() in PipelineOptions::", name,
                      "_chunk_spec each of them is given all of it");
  }
  return split_into_microbatches(tensors, num_microbatches, specs);
}

/// No part of any graph: what comes of backward must not depend on whether a schedule does it in parts.
inline at::Tensor extra_input_on(c10::Device device, const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().to(device) : tensor;
}

}  // namespace cohort::pipeline
