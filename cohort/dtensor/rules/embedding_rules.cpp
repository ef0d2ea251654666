// Rows of a table by number. A table whose rows are shared out is looked up where a rank has the row, 0 elsewhere: a Partial.
#include <ATen/ATen.h>

#include <string>

#include "cohort/dtensor/dispatch/rule_table.h"
#include "cohort/dtensor/rules/labels.h"
#include "cohort/dtensor/rules/rules.h"
#include "cohort/mesh/shard.h"

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

// Which of the table's rows this rank has, and where: `indices` counted in its part; `is_here`: a flag for each.
struct LocalRows {
  at::Tensor indices;
  at::Tensor is_here;
};

LocalRows local_rows(const Call& call, const Plan& plan, const at::Tensor& indices) {
  const auto held =
      held_ranges(call.operand(0).sizes(), call.mesh().shape(), *call.mesh().coordinate(), plan.operands[0]);
  LocalRows rows{at::zeros_like(indices), at::zeros_like(indices, indices.options().dtype(at::kBool))};
  int64_t passed = 0;
  for (const auto& range : held[0]) {
    const auto inside = indices.ge(range.begin).logical_and_(indices.lt(range.end));
    rows.indices = at::where(inside, indices - (range.begin - passed), rows.indices);
    rows.is_here.logical_or_(inside);
    passed += range.size();
  }
  return rows;
}

bool shares_out_rows(const Plan& plan) {
  for (const auto& placement : plan.operands[0]) {
    if (placement.is_shard_like() && placement.dim() == 0) return true;
  }
  return false;
}

void run_embedding(Call& call, const Plan& plan) {
  if (!shares_out_rows(plan)) return call.run();
  const auto table = call.local_tensor(0);
  const auto rows = local_rows(call, plan, call.local_tensor(1));
  if (table.size(0) == 0) {
    auto sizes = rows.indices.sizes().vec();
    sizes.push_back(table.size(1));
    return call.finish({at::zeros(sizes, table.options())});
  }
  const auto found = at::embedding(table, rows.indices);
  call.finish({found.mul_(rows.is_here.unsqueeze(-1))});
}

Labels embedding_backward_labels(const Call& call) {
  Labels labels(call);
  const auto dims = letters(call.operand(1).dim());
  labels.name(call, 0, dims + kColumns);
  labels.name(call, 1, dims);
  labels.results[0] = {.dims = std::string{kWhole, kColumns}, .summed = dims};
  if (call.argument(4).toBool()) labels.results[0].summed.clear();  // by frequency, which is that of all indices
  labels.linear = Linear::kEach;
  labels.linear_in = {0};
  return labels;
}

}  // namespace

void add_embedding_rules() {
  add_rule("aten::embedding", labelled(embedding_labels, run_embedding));
  add_rule("aten::embedding_dense_backward", labelled(embedding_backward_labels));
}

}  // namespace cohort::dtensor
