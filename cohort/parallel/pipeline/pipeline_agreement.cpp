#include "cohort/parallel/pipeline/pipeline_agreement.h"

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "cohort/comm/collectives/object_collectives.h"

namespace cohort::pipeline {
namespace {

using Words = std::vector<std::string>;

// Pairs of words: facts, then "in 1" and "out 0" of stages.
Words words_of(const PipelineFacts& facts) {
  Words words;
  const auto add = [&](const std::string& name, const std::string& value) {
    words.push_back(name);
    words.push_back(value);
  };
  for (const auto& [name, value] : facts.equal) add(name, value);
  for (const auto& [stage, text] : facts.inputs) add(fmt::format("in {}", stage), text);
  for (const auto& [stage, text] : facts.outputs) add(fmt::format("out {}", stage), text);
  return words;
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
        "gives "
        "is what the next one takes",
        stage - 1, given, stage, taken);
  }
  return "";
}

}  // namespace

void agree_on(const PipelineFacts& facts, const Group& group, int group_size) {
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
