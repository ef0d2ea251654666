#include "cohort/dtensor/api/sharding_rule.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <utility>

#include "cohort/dtensor/api/ready.h"
#include "cohort/dtensor/dispatch/global_shapes.h"

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
      "\n  hint: give an option one placement for each defined tensor among the arguments, and one for each result");
}

}  // namespace

void register_sharding_rule(const std::string& name, ShardingRule rule) {
  dtensor::make_ready();
  dtensor::set_rule(name,
                    {.options =
                         [rule = std::move(rule)](const dtensor::Call& call, const dtensor::Axis& axis,
                                                  std::vector<dtensor::Option>& options) {
                           for (auto& option : rule(question_of(call, axis))) {
                             check_option(call, option);
                             options.push_back({std::move(option.operands), std::move(option.results)});
                           }
                         },
                     .shapes = [](dtensor::Call& call, const dtensor::Plan&) { return dtensor::global_shapes(call); },
                     .reads_numbers = true});
}

}  // namespace cohort
