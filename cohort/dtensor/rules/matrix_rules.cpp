// Matrix products, and attention.
#include <string>

#include "cohort/dtensor/dispatch/rule_table.h"
#include "cohort/dtensor/rules/labels.h"
#include "cohort/dtensor/rules/rules.h"

namespace cohort::dtensor {
namespace {

// `first` and `second` are the arguments' numbers; `added`: that of what is added to the product, -1 if nothing is.
Rule product(int64_t first, int64_t second, const char* first_dims, const char* second_dims, const char* result_dims,
             int64_t added = -1) {
  return labelled([=](const Call& call) {
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
    for (const char one : numbered) dims += one == kWhole ? kWhole : result_dims[one - 'a'];
    labels.name(call, added, dims);
    return labels;
  });
}

// Batches and heads are apart from each other.
Rule attention(std::initializer_list<int64_t> tensors, int64_t mask) {
  const std::vector<int64_t> arguments = tensors;
  return labelled([arguments, mask](const Call& call) {
    Labels labels(call);
    const auto sizes = call.operand(call.operand_of(arguments.front())).sizes();
    bool share_keys = false;  // several heads one
    for (const int64_t argument : arguments) {
      share_keys |= call.operand(call.operand_of(argument)).sizes()[1] != sizes[1];
    }
    const std::string dims = share_keys ? "a..." : "ab..";
    for (const int64_t argument : arguments) labels.name(call, argument, dims);
    if (call.operand_of(mask) >= 0) {
      const auto of = call.operand(call.operand_of(mask)).sizes();
      std::string named(of.size(), kWhole);
      if (of.size() == 4 && of[0] == sizes[0]) named[0] = 'a';
      if (of.size() == 4 && of[1] == sizes[1] && !share_keys) named[1] = 'b';
      labels.name(call, mask, named);
    }
    for (auto& result : labels.results) result.dims = dims;
    return labels;
  });
}

}  // namespace

void add_matrix_rules() {
  add_rule("aten::mm", product(0, 1, "mk", "kn", "mn"));
  add_rule("aten::bmm", product(0, 1, "bmk", "bkn", "bmn"));
  add_rule("aten::mv", product(0, 1, "mk", "k", "m"));
  add_rule("aten::dot", product(0, 1, "k", "k", ""));
  add_rule("aten::addmm", product(1, 2, "mk", "kn", "mn", 0));
  add_rule("aten::baddbmm", product(1, 2, "bmk", "bkn", "bmn", 0));
  add_rule("aten::_scaled_dot_product_flash_attention_for_cpu", attention({0, 1, 2}, 5));
  add_rule("aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention({1, 0, 2, 3, 4, 5}, 8));
}

}  // namespace cohort::dtensor
