// Rows of a table by number. A table whose rows are shared out is looked up where a rank has the row, 0 elsewhere: a Partial.
#include <ATen/ATen.h>

#include <string>

#include "cohort/dtensor/dispatch/rule_table.h"
#include "cohort/dtensor/rules/labels.h"
#include "cohort/dtensor/rules/local_steps.h"
#include "cohort/dtensor/rules/rules.h"

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

void run_embedding(Call& call, const Plan& plan) {
  if (!crosses(plan, 0, only_dim(0, 2))) return call.run();
  const auto table = call.local_tensor(0);
  const auto rows = own_indices(call, plan, 0, 0, call.local_tensor(1));
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
