#include "cohort/checkpoint/sharded/exchange.h"

#include <c10/util/Exception.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "cohort/base/text.h"
#include "cohort/checkpoint/sharded/sharded_checkpoint.h"
#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/parallel/module/purpose.h"

namespace cohort::checkpoint {

CheckpointException::CheckpointException(c10::SourceLocation where, const std::string& message,
                                         std::map<int, std::string> failures)
    : c10::Error(where, message), failures_(std::move(failures)) {}

namespace detail {
namespace {

std::string packed(const StepResult& result) { return (result.failed ? '1' : '0') + result.text; }

StepResult unpacked(const std::string& message) {
  TORCH_INTERNAL_ASSERT(!message.empty());
  return {message[0] == '1', message.substr(1)};
}

std::vector<StepResult> unpacked(const BytesList& messages) {
  std::vector<StepResult> results;
  for (const std::string& message : messages) results.push_back(unpacked(message));
  return results;
}

std::string to_text(const Failures& failures) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [rank, text] : failures) list.push_back({rank, text});
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Failures from_text(const std::string& text) {
  Failures failures;
  for (const auto& entry : nlohmann::json::parse(text))
    failures.emplace(entry[0].get<int>(), entry[1].get<std::string>());
  return failures;
}

}  // namespace

StepResult attempt(const std::function<std::string()>& step) {
  try {
    return {false, step()};
  } catch (const std::exception& error) {
    return {true, comm::text_of(error)};
  }
}

void throw_if_failed(const base::Result<void>& result) { TORCH_CHECK(result.ok(), result.error().describe()); }

Failures failures_of(const std::vector<StepResult>& results) {
  Failures failures;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    if (results[rank].failed) failures.emplace(static_cast<int>(rank), results[rank].text);
  }
  return failures;
}

Group RankExchange::group_of(const Group& group, bool no_dist) {
  if (no_dist) return {};
  if (group) return group;
  return is_initialized() ? default_group() : Group();
}

int RankExchange::rank() const { return group_ ? get_rank(group_) : 0; }
int RankExchange::size() const { return group_ ? get_world_size(group_) : 1; }

std::vector<StepResult> RankExchange::gather(const StepResult& own) const {
  if (is_alone()) return {own};
  BytesList messages(rank() == 0 ? static_cast<size_t>(size()) : 0);
  const comm::CalledFor purpose(parallel::kStateExchange);
  gather_object(packed(own), rank() == 0 ? &messages : nullptr, group_rank(0), {.group = group_});
  return unpacked(messages);
}

std::vector<StepResult> RankExchange::all_gather(const StepResult& own) const {
  if (is_alone()) return {own};
  BytesList messages(static_cast<size_t>(size()));
  const comm::CalledFor purpose(parallel::kStateExchange);
  all_gather_object(messages, packed(own), {.group = group_});
  return unpacked(messages);
}

std::string RankExchange::scatter(const std::string& what, const std::vector<std::string>& texts,
                                  const Failures& failures) const {
  StepResult own;
  if (is_alone()) {
    own = failures.empty() ? StepResult{false, texts.at(0)} : StepResult{true, to_text(failures)};
  } else {
    BytesList inputs;
    for (int to = 0; rank() == 0 && to < size(); ++to) {
      inputs.push_back(packed(failures.empty() ? StepResult{false, texts.at(static_cast<size_t>(to))}
                                               : StepResult{true, to_text(failures)}));
    }
    BytesList output(1);
    scatter_object_list(output, rank() == 0 ? &inputs : nullptr, group_rank(0), {.group = group_});
    own = unpacked(output[0]);
  }
  if (own.failed) throw_failures(what, from_text(own.text));
  return own.text;
}

void RankExchange::throw_failures(const std::string& what, const Failures& failures) const {
  std::string text = "[cohort] " + what;
  for (const auto& [rank, reason] : failures) {
    const std::string indented = base::replace_all(reason, "\n", is_alone() ? "\n" : "\n  ");
    text += is_alone() ? "\n  caused by: " + indented : "\n  rank " + std::to_string(rank) + ": " + indented;
  }
  throw CheckpointException({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text, failures);
}

}  // namespace detail
}  // namespace cohort::checkpoint
