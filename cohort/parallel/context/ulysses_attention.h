/// All-to-all attention (DeepSpeed Ulysses): each rank has some positions of all heads, exchanges them for all positions of some
/// heads, computes plain attention, and exchanges back.
///
/// Makes two exchanges in forward and two in backward, for any number of ranks; takes any mask; needs at least as many heads as
/// ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/context/sequence_layout.h"

namespace cohort::parallel {

struct UlyssesOptions {
  /// If null, the default group; a rank that is alone has the full sequence.
  Group group = {};
  /// The mask of the full sequence, in its order, as scaled_dot_product_attention takes it; the same for all heads.
  std::optional<at::Tensor> attn_mask = {};
  bool is_causal = false;
  std::optional<double> scale = {};
  bool enable_gqa = false;
  /// The positions that this rank has.
  SequenceLayout layout = SequenceLayout::kHeadTail;
};

/// `query` [batch, heads, own positions, size], `key` and `value` [batch, key heads, own positions, size]. Returns a tensor of
/// the query's shape with the value's size. Forward and backward are collective; derivatives are those of
/// scaled_dot_product_attention.
/// Throws c10::ValueError, with the division, if the number of ranks does not divide the numbers of heads, and for shapes that do
/// not fit.
COHORT_API at::Tensor ulysses_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                        const UlyssesOptions& options = {});

}  // namespace cohort::parallel

// Old names, until the next release.
namespace cohort {
using UlyssesOptions [[deprecated("use cohort::parallel::UlyssesOptions")]] = parallel::UlyssesOptions;
using parallel::ulysses_attention;
}  // namespace cohort
