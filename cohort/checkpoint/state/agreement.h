/// Agreement: whether every rank can do its part of get_state_dict or set_state_dict, settled before tensors travel, so that no
/// rank waits for one that has refused.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <string>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/fsdp/sharding.h"

namespace cohort::checkpoint::detail {

class Agreement {
 public:
  /// `what`: how the error begins, "set_model_state_dict: nothing was set". `groups`: who has to agree; null ones do not count.
  Agreement(std::string what, std::vector<Group> groups) : what_(std::move(what)), groups_(std::move(groups)) {}

  /// Collective over the groups, one after the other. Throws what `step` throws if it is the same on all ranks, or else, on all
  /// of them, c10::Error with the reasons of those that refused. They are named by their number in the job, if there is one.
  void reach(const std::function<void()>& step) const;

 private:
  std::string what_;
  std::vector<Group> groups_;
};

/// Those of fully_shard on `model` and on modules in it, each once.
std::vector<fsdp::Sharding*> shardings_of(const torch::nn::Module& model);
/// The ranks that share the model's parameters; and those that have copies.
std::vector<Group> groups_of(const torch::nn::Module& model, bool with_replicas = false);

}  // namespace cohort::checkpoint::detail
