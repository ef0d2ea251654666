#include "cohort/dtensor/dispatch/rule.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "cohort/dtensor/wrapper/comm_log.h"
#include "cohort/dtensor/wrapper/moves.h"

namespace cohort::dtensor {
namespace {

bool is_written(const Rule& rule, const Operand& operand) {
  return operand.is_written ||
         std::find(rule.written.begin(), rule.written.end(), operand.argument) != rule.written.end();
}

// In bytes; negative: not possible.
double price_of_option(const Rule& rule, const Call& call, const Axis& axis, const Option& option) {
  double price = 0;
  for (size_t i = 0; i < option.operands.size(); ++i) {
    const auto& operand = call.operand(i);
    const auto& now = call.placement(i, axis.index);
    if (now == option.operands[i]) continue;
    if (is_written(rule, operand)) return -1;
    price += price_of(now, option.operands[i], axis.num_ranks,
                      static_cast<double>(operand.tensor.numel() * static_cast<int64_t>(operand.tensor.itemsize())));
  }
  return price;
}

[[noreturn]] void refuse_in_place(const Rule& rule, const Call& call, const Axis& axis) {
  const auto written = std::find_if(call.operands().begin(), call.operands().end(),
                                    [&](const auto& operand) { return is_written(rule, operand); });
  const auto index = written - call.operands().begin();
  TORCH_CHECK_NOT_IMPLEMENTED(false, "[cohort] DTensor: ", call.name(), " works in place on a tensor of shape ",
                              written->sizes(), " that is ", call.placement(index, axis.index), " on axis ", axis.index,
                              " of its mesh, and cannot be done without placing it otherwise\n  hint: use the form "
                              "that returns a new tensor, or "
                              "DTensor(x).redistribute({Replicate()}) before");
}

Option all_replicated(const Call& call) {
  return {Placements(call.operands().size(), Replicate()), Placements(call.num_results(), Replicate())};
}

Option choose_option(const Rule& rule, const Call& call, const Axis& axis) {
  std::vector<Option> options;
  rule.options(call, axis, options);
  options.push_back(all_replicated(call));
  std::optional<size_t> best;
  double best_price = 0;
  for (size_t i = 0; i < options.size(); ++i) {
    const double price = price_of_option(rule, call, axis, options[i]);
    if (price < 0 || (best && price >= best_price)) continue;
    best = i;
    best_price = price;
  }
  if (!best) refuse_in_place(rule, call, axis);
  return std::move(options[*best]);
}

void move_operands(Call& call, const Plan& plan) {
  for (size_t i = 0; i < call.operands().size(); ++i) {
    const auto& tensor = call.operand(i).tensor;
    if (is_dtensor(tensor)) {
      const auto& parts = parts_of(tensor);
      call.set_local(i, moved(parts.local, parts.mesh, parts.placements, plan.operands[i], tensor.sizes()));
    } else {
      const auto placements = replicated(call.mesh());
      if (!(plan.operands[i] == placements)) {
        call.set_local(i, moved(tensor, call.mesh(), placements, plan.operands[i], tensor.sizes()));
      }
    }
  }
}

// The operand that result `index` is, of an operation in place.
const Operand* written_as_result(const Call& call, size_t index) {
  const auto* alias = call.op().schema().returns()[index].alias_info();
  if (!alias || !alias->isWrite()) return nullptr;
  for (const auto& operand : call.operands()) {
    if (!operand.is_written) continue;
    if (*call.op().schema().arguments()[operand.argument].alias_info() == *alias) return &operand;
  }
  return nullptr;
}

void wrap_results(const Rule& rule, Call& call, const Plan& plan) {
  std::vector<Shape> shapes;
  const auto wrap = [&](at::Tensor local, size_t shape, size_t placements) {
    if (shapes.empty()) shapes = rule.shapes(call, plan);
    const auto& whole = shapes.at(shape);
    return make_dtensor(std::move(local), call.mesh(), plan.results[placements], whole.sizes, whole.strides);
  };
  for (size_t i = 0; i < call.num_results(); ++i) {
    auto& result = call.result(i);
    if (const auto* operand = written_as_result(call, i)) {
      result = operand->tensor;
    } else if (result.isTensor() && result.toTensor().defined()) {
      auto wrapped = wrap(result.toTensor(), i, i);
      call.result(i) = std::move(wrapped);
    } else if (result.isTensorList()) {
      auto list = result.toTensorVector();
      for (size_t item = 0; item < list.size(); ++item) list[item] = wrap(list[item], item, i);
      call.result(i) = std::move(list);
    }
  }
}

}  // namespace

Plan choose_plan(const Rule& rule, const Call& call) {
  Plan plan{std::vector<Placements>(call.operands().size()), std::vector<Placements>(call.num_results())};
  for (int64_t index = 0; index < call.mesh().ndim(); ++index) {
    const Axis axis{index, call.mesh().size(index)};
    auto option = choose_option(rule, call, axis);
    for (size_t i = 0; i < plan.operands.size(); ++i) plan.operands[i].push_back(std::move(option.operands[i]));
    for (size_t i = 0; i < plan.results.size(); ++i) plan.results[i].push_back(std::move(option.results[i]));
  }
  return plan;
}

void run_by_rule(const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const AtWork at_work(&op,
                       [](const void* handle) { return name_of(*static_cast<const c10::OperatorHandle*>(handle)); });
  Call call(op, stack);
  const auto plan = choose_plan(rule, call);
  move_operands(call, plan);
  if (rule.run) {
    rule.run(call, plan);
  } else {
    call.run();
  }
  wrap_results(rule, call, plan);
  call.commit();
}

}  // namespace cohort::dtensor
