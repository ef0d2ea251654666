/// What all ranks of a pipeline must have alike, compared in the first step: otherwise some would wait for what never comes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/pipeline/tensor_header.h"

namespace cohort::pipeline {

struct PipelineFacts {
  /// Names and values in words, by which ranks are compared with rank 0.
  std::vector<std::pair<std::string, std::string>> equal;
  /// By stage, where it was said beforehand: what it is given, and what it gives.
  std::map<int, std::string> inputs, outputs;
  /// By rank: which parameters it has, too, in words.
  std::map<int, std::string> ties;
};

/// Collective. Throws c10::ValueError, the same on all ranks, for the first difference.
void agree_on(const PipelineFacts& facts, const Group& group, int group_size);

}  // namespace cohort::pipeline
