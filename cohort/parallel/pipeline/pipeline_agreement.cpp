#include "cohort/parallel/pipeline/pipeline_agreement.h"

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <map>
#include <string_view>
#include <utility>

#include "cohort/base/text.h"
#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/parallel/pipeline/purpose.h"

namespace cohort::pipeline {
namespace {

using Words = std::vector<std::string>;

// Pairs of words: facts, then "in 1" and "out 0" of stages, and "ties with 1" of ranks.
Words words_of(const PipelineFacts& facts) {
  Words words;
  const auto add = [&](const std::string& name, const std::string& value) {
    words.push_back(name);
    words.push_back(value);
  };
  for (const auto& [name, value] : facts.equal) add(name, value);
  for (const auto& [stage, text] : facts.inputs) add(fmt::format("in {}", stage), text);
  for (const auto& [stage, text] : facts.outputs) add(fmt::format("out {}", stage), text);
  for (const auto& [rank, text] : facts.ties) add(fmt::format("ties with {}", rank), text);
  return words;
}

// What two ranks share is the same for both, in the same order.
std::string difference_of_ties(const std::vector<Words>& all, size_t first_word) {
  static constexpr std::string_view kHead = "ties with ";
  std::map<std::pair<size_t, size_t>, std::string> ties;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (size_t i = first_word; i + 1 < all[rank].size(); i += 2) {
      if (!all[rank][i].starts_with(kHead)) continue;
      const auto other = static_cast<size_t>(base::parse_int(all[rank][i].substr(kHead.size())).value_or(0));
      ties[{rank, other}] = all[rank][i + 1];
      ties.try_emplace({other, rank}, "none");
    }
  }
  for (const auto& [ranks, text] : ties) {
    const auto [rank, other] = ranks;
    const std::string& theirs = ties[{other, rank}];
    if (text == theirs) continue;
    return fmt::format(
        "[cohort] pipeline: tied_parameters of rank {} that rank {} has, too, are {}, but those of rank {} that rank "
        "{} "
        "has, too, are {}\n  hint: both ranks name each other's stage, and the same parameters in the same order",
        rank, other, text, other, rank, theirs);
  }
  return "";
}

std::string first_difference(const PipelineFacts& own, const std::vector<Words>& all) {
  for (size_t rank = 1; rank < all.size(); ++rank) {
    for (size_t i = 0; i < own.equal.size(); ++i) {
      const std::string &one = all[0][2 * i + 1], &two = all[rank][2 * i + 1];
      if (one == two) continue;
      return fmt::format("[cohort] pipeline: the ranks differ: {} is {} on rank 0, but {} on rank {}",
                         own.equal[i].first, one, two, rank);
    }
  }
  std::map<std::string, std::string> shapes;
  for (const Words& words : all) {
    for (size_t i = 2 * own.equal.size(); i + 1 < words.size(); i += 2) shapes[words[i]] = words[i + 1];
  }
  for (int stage = 1; shapes.contains(fmt::format("in {}", stage)); ++stage) {
    const std::string &given = shapes[fmt::format("out {}", stage - 1)], &taken = shapes[fmt::format("in {}", stage)];
    if (given == taken) continue;
    return fmt::format(
        "[cohort] pipeline: output_args of stage {} are {}, but input_args of stage {} are {}\n  hint: what a stage "
        "gives is what the next one takes",
        stage - 1, given, stage, taken);
  }
  return difference_of_ties(all, 2 * own.equal.size());
}

}  // namespace

void agree_on(const PipelineFacts& facts, const Group& group, int group_size) {
  const comm::CalledFor purpose(kStepAgreement);
  ObjectList gathered(static_cast<size_t>(group_size));
  all_gather_object(gathered, c10::IValue(words_of(facts)), {.group = group});
  std::vector<Words> all;
  for (const auto& object : gathered) {
    Words& words = all.emplace_back();
    for (const auto& word : object.toListRef()) words.push_back(word.toStringRef());
    TORCH_CHECK_VALUE(words.size() >= 2 * facts.equal.size(), "[cohort] pipeline: rank ", all.size() - 1,
                      " does something else than a pipeline's first step");
  }
  const std::string difference = first_difference(facts, all);
  TORCH_CHECK_VALUE(difference.empty(), difference);
}

}  // namespace cohort::pipeline
