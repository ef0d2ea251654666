// Adapts GPT-2's files to the model: their names differ, and their maps are stored transposed.
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "cohort/models/gpt.h"

namespace cohort::models {
namespace {

using checkpoint::StateDict;

constexpr const char* kTransformer = "transformer.";
constexpr const char* kTokens = "transformer.wte.weight";
constexpr const char* kPositions = "transformer.wpe.weight";
constexpr const char* kHead = "lm_head.weight";
constexpr std::array<std::string_view, 4> kMaps = {".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight",
                                                   ".mlp.c_proj.weight"};

// Whether it is a constant that older programs stored beside the parameters.
bool is_mask(const std::string& name) { return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"); }

bool is_map(const std::string& name) {
  return std::any_of(kMaps.begin(), kMaps.end(), [&](std::string_view ending) { return name.ends_with(ending); });
}

StateDict with_own_names(const StateDict& weights) {
  const bool has_prefix = !weights.contains("wte.weight");
  StateDict named;
  for (const auto& item : weights) {
    if (is_mask(item.key())) continue;
    named.insert(has_prefix || item.key() == kHead ? item.key() : kTransformer + item.key(), item.value());
  }
  return named;
}

// Whether maps are [inputs, outputs], as in TensorFlow. A square map does not tell, so the first map, which is not square,
// decides for all.
bool are_transposed(const StateDict& weights) {
  const at::Tensor* first = weights.find("transformer.h.0.attn.c_attn.weight");
  return first != nullptr && first->dim() == 2 && first->size(1) == 3 * first->size(0);
}

}  // namespace

StateDict GPTImpl::adapted_weights(StateDict weights, std::vector<std::string>* notes) const {
  weights = with_own_names(weights);
  if (are_transposed(weights)) {
    for (auto& item : weights) {
      if (is_map(item.key()) && item.value().dim() == 2) item.value() = item.value().t();
    }
    notes->push_back("linear maps: transposed, as GPT-2's files have them the other way round");
  }
  const at::Tensor* tokens = weights.find(kTokens);
  if (tokens != nullptr && !weights.contains(kHead)) {
    weights.insert(kHead, at::Tensor(*tokens));
    if (!options_.tie_weights) notes->push_back(c10::str("\"", kHead, "\": the values of \"", kTokens, "\""));
  }
  at::Tensor* positions = weights.find(kPositions);
  if (positions != nullptr && positions->dim() == 2 && positions->size(0) > options_.block_size) {
    notes->push_back(
        c10::str("\"", kPositions, "\": the first ", options_.block_size, " of ", positions->size(0), " positions"));
    *positions = positions->narrow(0, 0, options_.block_size);
  }
  return weights;
}

}  // namespace cohort::models
