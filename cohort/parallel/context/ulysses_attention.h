/// All-to-all attention (DeepSpeed Ulysses): each rank has some positions of all heads, exchanges them for all positions of some
/// heads, computes plain attention, and exchanges back.
///
/// Two exchanges in forward and two in backward, however many ranks; any mask; needs at least as many heads as ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/context/sequence_layout.h"

namespace cohort {

struct UlyssesOptions {
  /// Null: the default group; a rank that is alone has the whole sequence.
  Group group = {};
  /// Of the whole sequence, in its order, as scaled_dot_product_attention takes it; the same for all heads.
  std::optional<at::Tensor> attn_mask = {};
  bool is_causal = false;
  std::optional<double> scale = {};
  bool enable_gqa = false;
  /// Which positions this rank has.
  SequenceLayout layout = SequenceLayout::kHeadTail;
};

/// `query` [batch, heads, own positions, size], `key` and `value` [batch, key heads, own positions, size]; the result has the
/// query's shape with the value's size. Collective, as is its backward; derivatives are scaled_dot_product_attention's.
/// Throws c10::ValueError, with the division, for numbers of heads that the ranks do not divide, and for shapes that do not fit.
COHORT_API at::Tensor ulysses_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                        const UlyssesOptions& options = {});

}  // namespace cohort
