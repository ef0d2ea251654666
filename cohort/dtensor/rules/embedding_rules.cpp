// Embedding lookups. With a table sharded by rows, a rank looks up the rows that it has, and 0 for others: the result is Partial.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <string>
#include <vector>

#include "cohort/dtensor/dispatch/rule_table.h"
#include "cohort/dtensor/rules/labels.h"
#include "cohort/dtensor/rules/local_steps.h"
#include "cohort/dtensor/rules/rules.h"
#include "cohort/dtensor/wrapper/redistribution.h"

namespace cohort::dtensor {
namespace {

constexpr char kRows = 'y', kColumns = 'z';

Labels embedding_labels(const Call& call) {
  Labels labels(call);
  const auto dims = letters(call.operand(1).dim());
  labels.name(call, 0, {kRows, kColumns});
  labels.name(call, 1, dims);
  labels.results[0] = {.dims = dims + kColumns, .summed = {kRows}};
  labels.linear = Linear::kEach;
  labels.linear_in = {0};
  return labels;
}

bool is_row_shard(const Placement& placement) { return placement.is_shard_like() && placement.dim() == 0; }

// If rows and indices are both sharded, such as positions of a sequence, all ranks look all indices up, and each gets the sums of
// its own indices. This is cheaper than sums for all, and the result stays sharded.
void embedding_options(const Call& call, const Axis& axis, std::vector<Option>& options) {
  const auto &table = call.placement(0, axis.index), &indices = call.placement(1, axis.index);
  if (is_row_shard(table) && indices.is_shard()) options.push_back({{table, indices}, {indices}});
}

// Returns the axes that shard both.
std::vector<size_t> axes_of_both(const Plan& plan) {
  std::vector<size_t> axes;
  for (size_t axis = 0; axis < plan.operands[0].size(); ++axis) {
    if (is_row_shard(plan.operands[0][axis]) && plan.operands[1][axis].is_shard_like()) axes.push_back(axis);
  }
  return axes;
}

at::Tensor indices_of_all(const Call& call, const Plan& plan) {
  auto gathered = plan.operands[1];
  for (const size_t axis : axes_of_both(plan)) gathered[axis] = Replicate();
  return redistributed(call.local_tensor(1), call.mesh(), plan.operands[1], gathered, call.operand(1).sizes());
}

at::Tensor sums_of_own(const Call& call, const Plan& plan, const at::Tensor& found) {
  auto summands = plan.results[0];
  for (const size_t axis : axes_of_both(plan)) summands[axis] = Partial();
  auto sizes = call.operand(1).sizes().vec();
  sizes.push_back(call.operand(0).sizes()[1]);
  return redistributed(found, call.mesh(), summands, plan.results[0], sizes);
}

// Refuses indices that no rank has: they would silently give 0.
void check_in_table(const Call& call, const at::Tensor& indices) {
  if (!indices.is_cpu() || indices.numel() == 0) return;  // would have to wait for the device
  const int64_t num_rows = call.operand(0).sizes()[0];
  const auto [least, greatest] = at::aminmax(indices);
  const auto low = least.item<int64_t>(), high = greatest.item<int64_t>();
  TORCH_CHECK_INDEX(low >= 0 && high < num_rows, "[cohort] DTensor: ", call.name(), ": index ", low < 0 ? low : high,
                    " is outside a table of ", num_rows,
                    " rows\n  hint: check whether the tokenizer has more words than the model");
}

void run_embedding(Call& call, const Plan& plan) {
  if (!crosses(plan, 0, only_dim(0, 2))) return call.run();
  const auto table = call.local_tensor(0);
  const auto indices = indices_of_all(call, plan);
  check_in_table(call, indices);
  const auto rows = own_indices(call, plan, 0, 0, indices);
  if (table.size(0) == 0) {
    auto sizes = rows.indices.sizes().vec();
    sizes.push_back(table.size(1));
    return call.finish({sums_of_own(call, plan, at::zeros(sizes, table.options()))});
  }
  const auto found = at::embedding(table, rows.indices);
  call.finish({sums_of_own(call, plan, found.masked_fill_(rows.is_here.logical_not().unsqueeze(-1), 0))});
}

Labels embedding_backward_labels(const Call& call) {
  Labels labels(call);
  const auto dims = letters(call.operand(1).dim());
  labels.name(call, 0, dims + kColumns);
  labels.name(call, 1, dims);
  labels.results[0] = {.dims = std::string{kUnsharded, kColumns}, .summed = dims};
  // All indices on all ranks: to scale by their frequency, or if the gathered gradient is smaller than sums of the full table.
  const bool is_for_all = call.argument(4).toBool() || call.operand(1).tensor.numel() < call.argument(2).toInt();
  if (is_for_all) labels.results[0].summed.clear();
  labels.linear = Linear::kEach;
  labels.linear_in = {0};
  return labels;
}

}  // namespace

void add_embedding_rules() {
  auto embedding = labeled(embedding_labels, run_embedding);
  embedding.options = [general = embedding.options](const Call& call, const Axis& axis, std::vector<Option>& options) {
    embedding_options(call, axis, options);
    general(call, axis, options);
  };
  add_rule("aten::embedding", embedding);
  add_rule("aten::embedding_dense_backward", labeled(embedding_backward_labels));
}

}  // namespace cohort::dtensor
