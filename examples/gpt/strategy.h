// How the ranks of train_gpt share the work. Each strategy is a file: replicated.h and sharded.h.
#pragma once

#include <cohort/checkpoint/recovery/snapshot_state.h>
#include <cohort/comm/group/process_group.h>
#include <cohort/models/gpt.h>
#include <cohort/parallel/activation/activation_checkpoint.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "settings.h"

namespace gpt {

using cohort::models::GPT;
using torch::optim::Optimizer;

class Strategy {
 public:
  virtual ~Strategy() = default;

  // Collective, also in evaluation: every rank makes as many passes as the others.
  virtual at::Tensor forward(const at::Tensor& tokens) = 0;
  // `pass` runs forward and backward; its gradients stay on this rank until a pass outside of here.
  virtual void without_sync(const std::function<void()>& pass) = 0;
  virtual void train(bool on) = 0;
  // What this rank updates.
  virtual std::vector<at::Tensor> parameters() const = 0;
  virtual Optimizer& optimizer() = 0;
  // For states in memory.
  virtual cohort::checkpoint::SnapshotState snapshot_state() = 0;

  // What a process that trains alone would have, for checkpoints and samples. Collective, and for rank 0: others get null.
  virtual GPT whole_net() = 0;
  virtual std::shared_ptr<const Optimizer> whole_optimizer(const GPT& whole_net) = 0;
  // Collective. `read` restores both; it is called on rank 0, and wherever else it must be.
  virtual void load(const std::function<void(GPT& whole_net, Optimizer& whole_optimizer)>& read) = 0;
};

// The same on every rank, which the strategies need.
inline GPT make_net(const Settings& settings) {
  torch::manual_seed(settings.seed);
  GPT net(cohort::models::GPTOptions{.block_size = settings.context,
                                     .n_layer = settings.depth,
                                     .n_head = settings.heads,
                                     .n_embd = settings.width,
                                     .dropout = settings.dropout});
  if (const auto every = static_cast<size_t>(settings.activation_checkpointing); every > 0) {
    cohort::apply_activation_checkpointing<cohort::models::GPTBlockImpl>(
        *net->transformer->h, [every](size_t layer) { return layer % every == 0; });
  }
  torch::manual_seed(settings.seed + 1 + cohort::get_rank());  // dropout differs between ranks
  return net;
}

inline torch::optim::AdamWOptions adamw_options(const Settings& settings) {
  return torch::optim::AdamWOptions(settings.learning_rate).betas({0.9, 0.95});
}

// Matrices decay, the rest does not.
inline std::vector<torch::optim::OptimizerParamGroup> param_groups(const Settings& settings,
                                                                   const std::vector<at::Tensor>& parameters) {
  using torch::optim::AdamWOptions;
  const auto groups = cohort::models::decay_groups(parameters);
  const AdamWOptions options = adamw_options(settings);
  return {{groups.decayed, std::make_unique<AdamWOptions>(AdamWOptions(options).weight_decay(settings.weight_decay))},
          {groups.not_decayed, std::make_unique<AdamWOptions>(AdamWOptions(options).weight_decay(0.0))}};
}

inline std::unique_ptr<Optimizer> make_adamw(const Settings& settings, const std::vector<at::Tensor>& parameters) {
  return std::make_unique<torch::optim::AdamW>(param_groups(settings, parameters), adamw_options(settings));
}

}  // namespace gpt
