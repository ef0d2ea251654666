/// Reorders full sequences into the order of the ranks that shard them, and back. Local.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "cohort/parallel/context/sequence_layout.h"

namespace cohort::parallel {

/// Return the ranks' shards one after the other along `dim`, and the same in the order of the full sequence. Local.
at::Tensor in_order_of_ranks(const at::Tensor& full, int64_t dim, SequenceLayout layout, int64_t num_ranks);
at::Tensor in_order_of_sequence(const at::Tensor& shards, int64_t dim, SequenceLayout layout, int64_t num_ranks);
/// Throws c10::ValueError as shard_sequence does.
void check_length(int64_t length, int64_t dim, SequenceLayout layout, int64_t num_ranks);

}  // namespace cohort::parallel
