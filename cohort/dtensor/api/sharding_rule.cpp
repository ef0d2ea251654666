#include "cohort/dtensor/api/sharding_rule.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <utility>

#include "cohort/dtensor/api/ready.h"

namespace cohort {
namespace {

ShardingQuestion question_of(const dtensor::Call& call, const dtensor::Axis& axis) {
  ShardingQuestion question;
  question.num_ranks = axis.num_ranks;
  for (size_t i = 0; i < call.operands().size(); ++i) {
    question.shapes.push_back(call.operand(i).sizes().vec());
    question.placements.push_back(call.placement(i, axis.index));
  }
  for (size_t i = 0; i < call.num_arguments(); ++i) question.arguments.push_back(call.argument(i));
  return question;
}

void check_option(const dtensor::Call& call, const ShardingOption& option) {
  TORCH_CHECK_VALUE(
      option.operands.size() == call.operands().size() && option.results.size() == call.num_results(),
      "[cohort] the sharding rule of ", call.name(), " names ", option.operands.size(), " tensors and ",
      option.results.size(), " results, but the call has ", call.operands().size(), " and ", call.num_results(),
      "\n  hint: an option has a placement for each tensor among the arguments that is there, and for each result");
}

at::Tensor on_meta(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

// The operation once more, on tensors of the whole sizes without data.
std::vector<dtensor::Shape> meta_shapes(dtensor::Call& call, const dtensor::Plan&) {
  torch::jit::Stack stack;
  for (size_t i = 0; i < call.num_arguments(); ++i) {
    auto value = call.argument(i);
    if (value.isTensor() && value.toTensor().defined()) value = on_meta(value.toTensor());
    if (value.isTensorList()) {
      auto list = value.toTensorVector();
      for (auto& tensor : list) tensor = on_meta(tensor);
      value = std::move(list);
    }
    stack.push_back(std::move(value));
  }
  call.op().callBoxed(stack);
  std::vector<dtensor::Shape> shapes;
  for (const auto& result : stack) {
    if (!result.isTensor() && !result.isTensorList()) continue;
    const auto tensors = result.isTensor() ? std::vector<at::Tensor>{result.toTensor()} : result.toTensorVector();
    for (const auto& tensor : tensors) {
      shapes.push_back(tensor.defined() ? dtensor::Shape{tensor.sizes().vec(), tensor.strides().vec()}
                                        : dtensor::Shape());
    }
  }
  return shapes;
}

}  // namespace

void register_sharding_rule(const std::string& name, ShardingRule rule) {
  dtensor::make_ready();
  dtensor::set_rule(name, {.options =
                               [rule = std::move(rule)](const dtensor::Call& call, const dtensor::Axis& axis,
                                                        std::vector<dtensor::Option>& options) {
                                 for (auto& option : rule(question_of(call, axis))) {
                                   check_option(call, option);
                                   options.push_back({std::move(option.operands), std::move(option.results)});
                                 }
                               },
                           .shapes = meta_shapes,
                           .reads_numbers = true});
}

}  // namespace cohort
