/// A format for tests of the Checkpointer: each rank writes its tensors into a file of its own.
#pragma once

#include <string>
#include <vector>

#include "cohort/checkpoint/checkpointer/checkpointer.h"
#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/comm/group/process_group.h"

namespace cohort::test {

inline std::string rank_file_name(const Group& group) {
  return "rank-" + std::to_string(group ? get_rank(group) : 0) + ".safetensors";
}

inline checkpoint::CheckpointFormat rank_files() {
  checkpoint::CheckpointFormat format;
  format.save = [](const checkpoint::ShardedStateDict& state, const std::string& folder, const Group& group) {
    checkpoint::StateDict tensors;
    for (const auto& item : state) tensors.insert(item.key(), item.value().tensor);
    checkpoint::save_file(tensors, folder + "/" + rank_file_name(group));
    return std::vector<std::string>{rank_file_name(group)};
  };
  format.load = [](checkpoint::ShardedStateDict& state, const std::string& folder, const Group& group) {
    const auto tensors = checkpoint::load_file(folder + "/" + rank_file_name(group));
    for (auto& item : state) item.value().tensor.copy_(tensors[item.key()]);
  };
  return format;
}

}  // namespace cohort::test
