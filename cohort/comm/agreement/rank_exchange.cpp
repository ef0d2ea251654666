#include "cohort/comm/agreement/rank_exchange.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <exception>

#include "cohort/comm/agreement/text_values.h"
#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/comm/group/group_backend.h"
#include "cohort/comm/watch/throw_failure.h"

namespace cohort::comm {
namespace {

constexpr char kDone = '0', kFailed = '1';

std::string message_of(const StepResult& result) {
  return result ? kDone + *result : kFailed + result.error().describe();
}

StepResult result_in(const std::string& message) {
  if (message.starts_with(kDone)) return message.substr(1);
  return base::Error(message.substr(std::min<size_t>(message.size(), 1)));
}

std::vector<StepResult> results_in(const BytesList& messages) {
  std::vector<StepResult> results;
  for (const std::string& message : messages) results.push_back(result_in(message));
  return results;
}

// Returns the values of steps that have all succeeded.
std::vector<std::string> values_in(std::vector<StepResult> results) {
  std::vector<std::string> texts;
  for (auto& result : results) texts.push_back(std::move(*result));
  return texts;
}

}  // namespace

StepResult attempt(const std::function<std::string()>& step) {
  try {
    return step();
  } catch (...) {
    return base::Error(text_of(std::current_exception()));
  }
}

RankFailures failures_of(const std::vector<StepResult>& results) {
  RankFailures failures;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    if (!results[rank]) failures.emplace(static_cast<int>(rank), results[rank].error().describe());
  }
  return failures;
}

std::vector<StepResult> RankExchange::all(const StepResult& own) const {
  if (size() == 1) return {own};
  BytesList messages(static_cast<size_t>(size()));
  all_gather_object(messages, message_of(own), {.group = group_});
  return results_in(messages);
}

std::vector<c10::IValue> RankExchange::all_values(const c10::IValue& own) const {
  if (size() == 1) return {own};
  ObjectList values(static_cast<size_t>(size()));
  all_gather_object(values, own, {.group = group_});
  return values;
}

std::vector<std::vector<int64_t>> RankExchange::all_numbers(const std::vector<int64_t>& own) const {
  std::vector<std::vector<int64_t>> numbers;
  for (const auto& value : all_values(c10::IValue(own))) {
    auto& of_rank = numbers.emplace_back();
    for (const c10::IValue& number : value.toListRef()) of_rank.push_back(number.toInt());
  }
  return numbers;
}

StepResult RankExchange::from_first(const StepResult& own) const {
  if (size() == 1) return own;
  BytesList message{message_of(own)};
  broadcast_object_list(message, group_rank(0), {.group = group_});
  return result_in(message.front());
}

std::vector<int64_t> RankExchange::largest(std::vector<int64_t> numbers) const {
  if (size() == 1) return numbers;
  const at::Tensor shared = at::tensor(numbers, at::kLong).to(device_for_host_data(group_));
  all_reduce(shared, {.op = ReduceOp::MAX, .group = group_});
  const at::Tensor here = shared.cpu();
  std::copy_n(here.const_data_ptr<int64_t>(), numbers.size(), numbers.begin());
  return numbers;
}

std::vector<std::string> RankExchange::all_done(const std::string& what, const StepResult& own) const {
  auto results = all(own);
  auto failures = failures_of(results);
  if (!failures.empty()) throw RankError(what, std::move(failures), is_alone());
  return values_in(std::move(results));
}

std::vector<StepResult> RankExchange::at_first(const StepResult& own) const {
  if (size() == 1) return {own};
  BytesList messages(is_first() ? static_cast<size_t>(size()) : 0);
  gather_object(message_of(own), is_first() ? &messages : nullptr, group_rank(0), {.group = group_});
  return results_in(messages);
}

std::string RankExchange::answer_of_first(const std::string& what, const StepResult& own, const Answer& answer) const {
  auto results = at_first(own);
  auto failures = failures_of(results);
  std::vector<std::string> texts;
  if (is_first() && failures.empty()) {
    const auto answered = attempt([&] {
      texts = answer(values_in(std::move(results)));
      return std::string();
    });
    if (!answered) failures.emplace(0, answered.error().describe());
  }
  texts.resize(is_first() ? static_cast<size_t>(size()) : 0);
  ObjectList messages;
  for (auto& text : texts) {
    const auto sent = bytes_value(failures.empty() ? std::move(text) : std::string());
    messages.emplace_back(c10::ivalue::Tuple::create({value_of(failures), sent}));
  }
  ObjectList received(1);
  if (size() == 1) {
    received = std::move(messages);
  } else {
    scatter_object_list(received, is_first() ? &messages : nullptr, group_rank(0), {.group = group_});
  }
  const auto elements = received.front().toTupleRef().elements();
  failures = failures_of(elements.at(0));
  if (!failures.empty()) throw RankError(what, std::move(failures), is_alone());
  return bytes_of(elements.at(1));
}

}  // namespace cohort::comm
