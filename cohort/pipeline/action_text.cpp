#include "cohort/pipeline/action_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "cohort/base/text/text.h"

namespace cohort::pipeline {
namespace {

using KindName = std::pair<std::string_view, ActionKind>;
constexpr std::array<KindName, 12> kKindNames = {{{"F", ActionKind::kForward},
                                                  {"I", ActionKind::kBackwardInput},
                                                  {"W", ActionKind::kBackwardWeight},
                                                  {"B", ActionKind::kFullBackward},
                                                  {"UNSHARD", ActionKind::kUnshard},
                                                  {"RESHARD", ActionKind::kReshard},
                                                  {"SEND_F", ActionKind::kSendForward},
                                                  {"RECV_F", ActionKind::kReceiveForward},
                                                  {"SEND_B", ActionKind::kSendBackward},
                                                  {"RECV_B", ActionKind::kReceiveBackward},
                                                  {"OVERLAP_F_B", ActionKind::kOverlap},
                                                  {"REDUCE_GRAD", ActionKind::kReduceGrad}}};
constexpr size_t kMostParts = 16;
// The limit for a table: files may have one long list and many empty ones.
constexpr size_t kMostCells = size_t{1} << 18;

// Shortens a text of a file, which may be long.
std::string shortened(std::string_view text) {
  return text.size() > 60 ? std::string(text.substr(0, 60)) + "..." : std::string(text);
}

base::Error bad_action(std::string_view text, std::string_view why) {
  return base::Error(
      fmt::format("Invalid action string: {}, should be formatted as [stage][action type][(microbatch)] e.g. 2F0: {}",
                  shortened(text), why));
}

std::string_view take_digits(std::string_view* rest) {
  const size_t length = std::min(rest->find_first_not_of("0123456789"), rest->size());
  const auto digits = rest->substr(0, length);
  rest->remove_prefix(length);
  return digits;
}

// Parses a number below `limit`.
std::optional<int> small_number(std::string_view digits, int limit) {
  const auto number = base::parse_int(digits);
  if (!number || *number >= limit) return std::nullopt;
  return static_cast<int>(*number);
}

base::Result<Action> parse_single(std::string_view text) {
  std::string_view rest = text;
  const auto stage_digits = take_digits(&rest);
  if (stage_digits.empty()) return bad_action(text, "it does not begin with a stage");
  const auto stage = small_number(stage_digits, kMostStages);
  if (!stage) return bad_action(text, fmt::format("a pipeline has fewer than {} stages", kMostStages));
  const auto name = rest.substr(0, std::min(rest.find_first_of("0123456789"), rest.size()));
  rest.remove_prefix(name.size());
  const auto* known =
      std::find_if(kKindNames.begin(), kKindNames.end(), [&](const auto& each) { return each.first == name; });
  if (known == kKindNames.end()) return bad_action(text, fmt::format("\"{}\" is not an action type", shortened(name)));
  if (known->second == ActionKind::kOverlap)
    return bad_action(text, "OVERLAP_F_B follows a list of actions in brackets");
  const auto microbatch_digits = take_digits(&rest);
  if (!rest.empty()) return bad_action(text, fmt::format("\"{}\" follows it", shortened(rest)));
  if (microbatch_digits.empty() == has_microbatch(known->second)) {
    return bad_action(text, fmt::format("{} has {} microbatch", name, microbatch_digits.empty() ? "a" : "no"));
  }
  if (microbatch_digits.empty()) return Action{known->second, *stage};
  const auto microbatch = small_number(microbatch_digits, kMostMicrobatches);
  if (!microbatch) return bad_action(text, fmt::format("a batch has fewer than {} microbatches", kMostMicrobatches));
  return Action{known->second, *stage, *microbatch};
}

base::Result<Action> parse_overlap(std::string_view text) {
  const size_t end = text.find(')');
  if (end == std::string_view::npos) return bad_action(text, "its bracket is not closed");
  if (text.substr(end + 1) != kind_text(ActionKind::kOverlap)) {
    return bad_action(text, "OVERLAP_F_B must follow its brackets");
  }
  Action overlap{ActionKind::kOverlap};
  for (const std::string& each : base::split(text.substr(1, end - 1), ';')) {
    if (overlap.parts.size() == kMostParts) return bad_action(text, "too many actions overlap");
    auto part = parse_single(base::trim(each));
    if (!part) return std::move(part).error();
    if (!is_compute(part->kind)) return bad_action(text, fmt::format("{} computes nothing", kind_text(part->kind)));
    overlap.parts.push_back(std::move(*part));
  }
  return overlap;
}

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 0, ' ');
}

}  // namespace

std::string_view kind_text(ActionKind kind) {
  for (const auto& [name, known] : kKindNames) {
    if (known == kind) return name;
  }
  return "";
}

std::string text_of(const Action& action) {
  if (action.kind == ActionKind::kIdle) return "";
  if (action.kind == ActionKind::kOverlap) {
    std::vector<std::string> parts;
    for (const Action& part : action.parts) parts.push_back(text_of(part));
    return fmt::format("({}){}", base::join(parts, ";"), kind_text(action.kind));
  }
  std::string text = fmt::format("{}{}", action.stage, kind_text(action.kind));
  return action.microbatch < 0 ? text : text + std::to_string(action.microbatch);
}

base::Result<Action> parse_action(std::string_view text) {
  const std::string trimmed = base::trim(text);
  if (trimmed.empty()) return Action();
  return trimmed.front() == '(' ? parse_overlap(trimmed) : parse_single(trimmed);
}

std::string order_table(const PipelineOrder& order, long long marked_step) {
  size_t num_steps = 0;
  for (const ActionList& list : order) num_steps = std::max(num_steps, list.size());
  const size_t digits = std::to_string(num_steps ? num_steps - 1 : 0).size();
  std::vector<size_t> widths;
  for (const ActionList& list : order) {
    size_t width = 5 + digits;
    for (const Action& action : list) width = std::max(width, text_of(action).size());
    widths.push_back(width);
  }
  const size_t num_shown = std::min(num_steps, kMostCells / std::max<size_t>(order.size(), 1));
  std::string table(7 + digits, ' ');
  for (size_t rank = 0; rank < order.size(); ++rank) {
    table += (rank ? " " : "") + padded("Rank " + std::to_string(rank), widths[rank]);
  }
  for (size_t step = 0; step < num_shown; ++step) {
    const std::string number = std::to_string(step);
    table += "\nStep " + std::string(digits - number.size(), '0') + number + ": ";
    for (size_t rank = 0; rank < order.size(); ++rank) {
      const bool is_there = step < order[rank].size();
      table += (rank ? " " : "") + padded(is_there ? text_of(order[rank][step]) : "", widths[rank]);
    }
    if (static_cast<long long>(step) == marked_step) table += " <-- ERROR HERE";
  }
  if (num_shown < num_steps) table += fmt::format("\n... and {} more steps", num_steps - num_shown);
  return table + "\n";
}

}  // namespace cohort::pipeline
