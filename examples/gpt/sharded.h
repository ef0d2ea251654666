// A part of everything on every rank: fully_shard. Whole models and states are there for checkpoints only, on rank 0.
#pragma once

#include <ATen/core/grad_mode.h>
#include <cohort/checkpoint/checkpointer/training_checkpoint.h>
#include <cohort/mesh/device_mesh.h>
#include <cohort/parallel/fsdp/full_tensor.h>
#include <cohort/parallel/fsdp/fully_shard.h>
#include <cohort/parallel/fsdp/optimizer_state.h>

#include "strategy.h"

namespace gpt {

class Sharded final : public Strategy {
 public:
  explicit Sharded(const Settings& settings)
      : settings_(settings),
        model_(shard(make_net(settings), settings)),
        optimizer_(make_adamw(settings, parameters())) {}

  at::Tensor forward(const at::Tensor& tokens) override { return model_(tokens); }
  void without_sync(const std::function<void()>& pass) override {
    const auto guard = model_->no_sync();
    pass();
  }
  void train(bool on) override { model_->train(on); }
  std::vector<at::Tensor> parameters() const override { return model_->parameters(); }
  Optimizer& optimizer() override { return *optimizer_; }
  cohort::checkpoint::SnapshotState snapshot_state() override {
    return cohort::checkpoint::snapshot_state(*model_, *optimizer_);
  }

  GPT whole_net() override {
    const at::NoGradGuard no_grad;
    const GPT net = is_first() ? make_net_quietly() : GPT(nullptr);
    for (const auto& parameter : cohort::fsdp::sharded_parameters(*model_)) {
      const at::Tensor full = cohort::fsdp::full_tensor(parameter);
      if (net) net->named_parameters()[parameter.name].copy_(full);
    }
    return net;
  }
  std::shared_ptr<const Optimizer> whole_optimizer(const GPT& whole_net) override {
    std::shared_ptr<Optimizer> whole = whole_net ? make_adamw(settings_, whole_net->parameters()) : nullptr;
    cohort::fsdp::get_full_optimizer_state(cohort::fsdp::sharded_parameters(*model_), *optimizer_, whole.get());
    return whole;
  }
  void load(const std::function<void(GPT&, Optimizer&)>& read) override {
    GPT net = is_first() ? make_net_quietly() : GPT(nullptr);
    const std::unique_ptr<Optimizer> whole = net ? make_adamw(settings_, net->parameters()) : nullptr;
    if (net) read(net, *whole);
    model_->write([&](const std::string& name, const at::Tensor& full) { full.copy_(net->named_parameters()[name]); });
    cohort::fsdp::set_full_optimizer_state(cohort::fsdp::sharded_parameters(*model_), *optimizer_, whole.get());
  }

 private:
  using Model = cohort::FullySharded<cohort::models::GPTImpl>;

  // Every block by itself, so that no more than one block's parameters need be whole at a time; then what is left.
  static Model shard(GPT net, const Settings& settings) {
    cohort::fsdp::Options options;
    if (const int replicas = static_cast<int>(settings.hsdp); replicas > 0) {
      const int shards = cohort::get_world_size() / replicas;
      options.mesh = cohort::init_device_mesh("cpu", {replicas, shards}, {"dp_replicate", "dp_shard"});
    }
    using Block = cohort::models::GPTBlockImpl;
    using CheckpointedBlock = cohort::ActivationCheckpointImpl<Block>;
    torch::nn::Sequential blocks;
    for (auto& block : *net->transformer->h) {
      if (const auto checkpointed = std::dynamic_pointer_cast<CheckpointedBlock>(block.ptr())) {
        blocks->push_back(cohort::fully_shard(checkpointed, options));
      } else {
        blocks->push_back(cohort::fully_shard(block.ptr<Block>(), options));
      }
    }
    net->transformer->h = net->transformer->replace_module("h", blocks);
    return cohort::fully_shard(net, options);
  }
  // Of the ranks that share the parameters.
  bool is_first() { return cohort::get_rank(model_->sharding().process_group()) == 0; }
  // Without a trace in the random numbers, which dropout goes on with.
  GPT make_net_quietly() const {
    const at::Tensor state = cohort::checkpoint::rng_state();
    GPT net = make_net(settings_);
    cohort::checkpoint::set_rng_state(state);
    return net;
  }

  Settings settings_;
  Model model_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace gpt
