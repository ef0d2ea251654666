// Losses. A mean is over all ranks: the sum of a rank's losses, divided by the number of all ranks' elements.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/Reduction.h>

#include <string>

#include "cohort/dtensor/dispatch/rule_table.h"
#include "cohort/dtensor/rules/labels.h"
#include "cohort/dtensor/rules/rules.h"

namespace cohort::dtensor {
namespace {

// ---- Element by element: prediction and target are arguments `first` and the next one ----

std::vector<int64_t> loss_sizes(const Call& call, int64_t first) {
  return at::infer_size(call.operand(call.operand_of(first)).sizes(), call.operand(call.operand_of(first + 1)).sizes());
}

struct ElementLoss {
  int64_t num_tensors;  ///< prediction, target, weights
  int64_t reduction;    ///< the argument's number
  bool is_backward;     ///< argument 0 is the gradient of the loss
};

bool is_reduced(const Call& call, const ElementLoss& loss) {
  return call.argument(loss.reduction).toInt() != at::Reduction::None;
}

Labels element_loss_labels(const Call& call, const ElementLoss& loss) {
  Labels labels(call);
  const int64_t first = loss.is_backward ? 1 : 0;
  const auto sizes = loss_sizes(call, first);
  for (int64_t i = first; i < first + loss.num_tensors; ++i) {
    const auto operand = call.operand_of(i);
    if (operand >= 0) labels.name(call, i, broadcast_letters(call.operand(operand).sizes(), sizes));
  }
  const auto dims = letters(static_cast<int64_t>(sizes.size()));
  const bool reduced = is_reduced(call, loss);
  if (loss.is_backward && !reduced) labels.name(call, 0, dims);
  const bool is_single = reduced && !loss.is_backward;
  labels.results[0] = is_single ? ResultLabels{.dims = "", .summed = dims} : ResultLabels{.dims = dims};
  return labels;
}

int64_t product_of(const std::vector<int64_t>& sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

// Multiplies the local mean by the local share of elements, because a sum may overflow in float16.
void run_mean_loss(Call& call, const ElementLoss& loss) {
  const int64_t first = loss.is_backward ? 1 : 0;
  const int64_t count = product_of(loss_sizes(call, first));
  const auto& prediction = call.local_tensor(first);
  const int64_t part = product_of(at::infer_size(prediction.sizes(), call.local_tensor(first + 1).sizes()));
  if (part == count) return call.run();
  if (part == 0 && !loss.is_backward) return call.finish({at::zeros({}, prediction.options())});
  call.run();
  call.result(0) = call.result(0).toTensor() * (static_cast<double>(part) / static_cast<double>(count));
}

Rule element_loss(const ElementLoss& loss) {
  return labeled([loss](const Call& call) { return element_loss_labels(call, loss); },
                 [loss](Call& call, const Plan&) {
                   if (call.argument(loss.reduction).toInt() != at::Reduction::Mean) return call.run();
                   run_mean_loss(call, loss);
                 });
}

}  // namespace

void add_loss_rules() {
  for (const char* name : {"mse_loss", "smooth_l1_loss", "huber_loss"}) {
    add_rule(std::string("aten::") + name, element_loss({2, 2, false}));
    add_rule(std::string("aten::") + name + "_backward", element_loss({2, 3, true}));
  }
  add_rule("aten::binary_cross_entropy", element_loss({3, 3, false}));
  add_rule("aten::binary_cross_entropy_backward", element_loss({3, 4, true}));
  add_rule("aten::binary_cross_entropy_with_logits", element_loss({4, 4, false}));
}

}  // namespace cohort::dtensor
