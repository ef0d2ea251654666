// Fused optimizers, over lists of parameters, gradients and states: gradients and states get their parameter's placements.
#include <string>

#include "cohort/dtensor/dispatch/rule_table.h"
#include "cohort/dtensor/rules/rules.h"

namespace cohort::dtensor {
namespace {

bool is_as_its_parameter(const Call& call, const Operand& operand) {
  return operand.item >= 0 && operand.sizes() == call.operand(operand.item).sizes();
}

// The first argument is the list of parameters. A Partial parameter cannot be stepped.
void fused_options(const Call& call, const Axis& axis, std::vector<Option>& options) {
  Option option;
  for (const auto& operand : call.operands()) {
    const bool follows = is_as_its_parameter(call, operand) && call.operand(operand.item).dim() > 0 &&
                         !call.placement(operand.item, axis.index).is_partial();
    option.operands.push_back(follows ? call.placement(operand.item, axis.index) : Placement(Replicate()));
  }
  options.push_back(std::move(option));
}

}  // namespace

void add_optimizer_rules() {
  for (const char* name : {"_fused_sgd_", "_fused_sgd_.tensor_lr", "_fused_adam_", "_fused_adam_.tensor_lr",
                           "_fused_adamw_", "_fused_adamw_.tensor_lr"}) {
    add_rule(std::string("aten::") + name,
             {.options = fused_options, .shapes = [](Call&, const Plan&) { return std::vector<Shape>(); }});
  }
}

}  // namespace cohort::dtensor
