// Matrix products, and attention.
#include <string>

#include "cohort/dtensor/dispatch/global_shapes.h"
#include "cohort/dtensor/dispatch/rule_table.h"
#include "cohort/dtensor/rules/labels.h"
#include "cohort/dtensor/rules/rules.h"

namespace cohort::dtensor {
namespace {

// `first`, `second` and `added` are arguments' numbers. `added` is added to the product; -1 if nothing is.
Rule product(int64_t first, int64_t second, const char* first_dims, const char* second_dims, const char* result_dims,
             int64_t added = -1) {
  auto rule = labeled([=](const Call& call) {
    Labels labels(call);
    labels.name(call, first, first_dims);
    labels.name(call, second, second_dims);
    labels.results[0] = {.dims = result_dims, .summed = "k"};
    labels.linear = Linear::kEach;
    labels.linear_in = {call.operand_of(first), call.operand_of(second)};
    if (added < 0) return labels;
    labels.added = call.operand_of(added);
    const auto& a = call.operand(call.operand_of(first)).sizes();
    const auto& b = call.operand(call.operand_of(second)).sizes();
    std::vector<int64_t> sizes(a.begin(), a.end());
    sizes.back() = b.back();
    const auto numbered = broadcast_letters(call.operand(labels.added).sizes(), sizes);
    std::string dims;
    for (const char one : numbered) dims += one == kUnsharded ? kUnsharded : result_dims[one - 'a'];
    labels.name(call, added, dims);
    return labels;
  });
  rule.product = {first, added};
  return rule;
}

// Kernels require the last dimension to have no gaps, and LibTorch has checked only the wrapper.
void run_attention(Call& call, const Plan&) {
  for (const auto& operand : call.operands()) {
    const auto& part = call.local_tensor(operand.argument);
    if (part.dim() == 4 && part.stride(-1) != 1) call.local(operand.argument) = part.contiguous();
  }
  call.run();
}

struct Attention {
  std::vector<int64_t> tensors;     ///< arguments with batches and heads, queries first
  int64_t mask = -1;                ///< the argument's number
  int64_t dropout = -1;             ///< the argument's number, or -1
  std::vector<size_t> others = {};  ///< results without batches and heads: seeds
};

// The letters of the mask, which may be broadcast.
std::string mask_dims(const Call& call, int64_t mask, c10::IntArrayRef queries, const std::string& dims) {
  const auto of = call.operand(call.operand_of(mask)).sizes();
  std::string named(of.size(), kUnsharded);
  if (of.size() == 4 && of[0] == queries[0]) named[0] = dims[0];
  if (of.size() == 4 && of[1] == queries[1]) named[1] = dims[1];
  return named;
}

// Batches and heads are independent of each other. Dropout draws from each rank's own generator, so it needs all heads
// everywhere.
Rule attention(const Attention& how) {
  return labeled(
      [how](const Call& call) {
        Labels labels(call);
        if (how.dropout >= 0 && call.argument(how.dropout).toDouble() != 0) return labels;
        const auto sizes = call.operand(call.operand_of(how.tensors.front())).sizes();
        bool share_keys = false;  // whether several heads share keys
        for (const int64_t argument : how.tensors) {
          share_keys |= call.operand(call.operand_of(argument)).sizes()[1] != sizes[1];
        }
        const std::string dims = share_keys ? "a..." : "ab..";
        for (const int64_t argument : how.tensors) labels.name(call, argument, dims);
        if (call.operand_of(how.mask) >= 0) labels.name(call, how.mask, mask_dims(call, how.mask, sizes, dims));
        labels.needed = dims;  // kernels divide by these sizes
        for (auto& result : labels.results) result.dims = dims;
        for (const size_t other : how.others) labels.results[other] = {.dims = "", .untouched = dims};
        return labels;
      },
      run_attention);
}

// The result has the query's memory order, which the shard of a single head does not show.
Rule cpu_attention() {
  auto rule = attention({{0, 1, 2}, 5});
  rule.shapes = [general = rule.shapes](Call& call, const Plan& plan) {
    auto shapes = general(call, plan);
    shapes[0] = shape_like(call.operand(call.operand_of(0)).tensor);
    return shapes;
  };
  return rule;
}

// The kernels that LibTorch uses on GPUs. None of them computes the gradient of a mask for sharded heads.
void add_gpu_attention_rules() {
  const std::string prefix = "aten::_scaled_dot_product_";
  add_rule(prefix + "flash_attention", attention({{0, 1, 2}, -1, 3, {2, 3, 4, 5, 6, 7, 8}}));
  add_rule(prefix + "flash_attention_backward", attention({{1, 0, 2, 3, 4, 5}, -1, 10}));
  add_rule(prefix + "efficient_attention", attention({{0, 1, 2}, 3, 5, {2, 3}}));
  add_rule(prefix + "cudnn_attention", attention({{0, 1, 2}, 3, 5, {2, 3, 4, 5, 6, 7, 8}}));
  add_rule(prefix + "cudnn_attention_backward", attention({{1, 0, 2, 3, 4, 5}, 8, 13}));
  auto efficient = attention({{1, 0, 2, 3, 5, 6}, 4, 9, {3}});
  efficient.options = [general = efficient.options](const Call& call, const Axis& axis, std::vector<Option>& options) {
    if (!call.argument(10).toBoolList().get(3))
      general(call, axis, options);  // the gradient of a mask sums over all heads
  };
  add_rule(prefix + "efficient_attention_backward", efficient);
}

}  // namespace

void add_matrix_rules() {
  add_rule("aten::mm", product(0, 1, "mk", "kn", "mn"));
  add_rule("aten::bmm", product(0, 1, "bmk", "bkn", "bmn"));
  add_rule("aten::mv", product(0, 1, "mk", "k", "m"));
  add_rule("aten::dot", product(0, 1, "k", "k", ""));
  add_rule("aten::addmm", product(1, 2, "mk", "kn", "mn", 0));
  add_rule("aten::baddbmm", product(1, 2, "bmk", "bkn", "bmn", 0));
  add_rule("aten::_scaled_dot_product_flash_attention_for_cpu", cpu_attention());
  add_rule("aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention({{1, 0, 2, 3, 4, 5}, 8}));
  add_gpu_attention_rules();
}

}  // namespace cohort::dtensor
