// The model whole on every rank: DistributedDataParallel, with --zero and the optimizer's state divided.
#pragma once

#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <cohort/parallel/zero/zero_redundancy_optimizer.h>

#include "strategy.h"

namespace gpt {

class Replicated final : public Strategy {
 public:
  explicit Replicated(const Settings& settings)
      : net_(make_net(settings)), model_(net_), optimizer_(make_optimizer(settings)) {}

  at::Tensor forward(const at::Tensor& tokens) override { return model_(tokens); }
  void without_sync(const std::function<void()>& pass) override {
    const auto guard = model_->no_sync();
    pass();
  }
  void train(bool on) override { model_->train(on); }
  std::vector<at::Tensor> parameters() const override { return model_->parameters(); }
  Optimizer& optimizer() override { return *optimizer_; }
  cohort::checkpoint::SnapshotState snapshot_state() override {
    return cohort::checkpoint::snapshot_state(*net_, *optimizer_);
  }

  GPT whole_net() override { return cohort::get_rank() == 0 ? net_ : GPT(nullptr); }
  std::shared_ptr<const Optimizer> whole_optimizer(const GPT&) override {
    if (zero()) zero()->consolidate_state_dict();
    if (cohort::get_rank() != 0) return nullptr;
    return zero() ? std::shared_ptr<const Optimizer>(optimizer_, &zero()->state_dict()) : optimizer_;
  }
  void load(const std::function<void(GPT&, Optimizer&)>& read) override {
    const auto whole = zero() ? zero()->whole_optimizer() : nullptr;
    read(net_, whole ? *whole : *optimizer_);
    if (whole) zero()->load_state_dict(*whole);
  }

 private:
  std::shared_ptr<Optimizer> make_optimizer(const Settings& settings) {
    if (!settings.zero) return make_adamw(settings, model_->parameters());
    const auto make = [options = adamw_options(settings)](auto own) {
      return std::make_unique<torch::optim::AdamW>(std::move(own), options);
    };
    return std::make_shared<cohort::ZeroRedundancyOptimizer>(param_groups(settings, model_->parameters()), make,
                                                             cohort::ZeroOptions{.parameters_as_bucket_view = true});
  }
  cohort::ZeroRedundancyOptimizer* zero() const {
    return dynamic_cast<cohort::ZeroRedundancyOptimizer*>(optimizer_.get());
  }

  GPT net_;
  cohort::DistributedDataParallel<cohort::models::GPTImpl> model_;
  std::shared_ptr<Optimizer> optimizer_;
};

}  // namespace gpt
