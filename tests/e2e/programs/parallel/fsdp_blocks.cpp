// Trains the net of tests/parallel/fsdp/blocks.h by fully_shard, a group per block, as fsdp_blocks_test.py does by PyTorch's
// FSDP2, and prints the losses and norms of all steps and the final parameters. Arguments: a backend, then words, one per
// feature. Run by `cohort run`.
#include <ATen/ATen.h>
#include <torch/optim/adamw.h>

#include <cstdio>
#include <map>
#include <set>
#include <string>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/parallel/activation/checkpoint.h"
#include "cohort/parallel/fsdp/replicate.h"
#include "tests/parallel/fsdp/blocks.h"

namespace {

namespace fsdp = cohort::fsdp;
using fsdp::test::Block;
using Words = std::set<std::string>;

// The same ranks by the names of axes, of a mesh that has more than data parallelism needs.
void name_axes(const Words& words, fsdp::Options& options) {
  const auto half = cohort::get_world_size() / 2;
  options.mesh = cohort::init_device_mesh("cpu", {half, 1, 2}, {"outer", "tp", "inner"});
  if (words.contains("hsdp")) {
    options.dp_mesh_dims = {{.shard = {"inner"}, .replicate = {"outer"}}};
  } else if (words.contains("replicate")) {
    options.dp_mesh_dims = {{.replicate = {"outer", "inner"}}};
  } else {
    options.dp_mesh_dims = {{.shard = {"outer", "inner"}}};
  }
}

fsdp::Options options_of(const Words& words) {
  fsdp::Options options{.one_memory = words.contains("one_memory")};
  const auto world_size = cohort::get_world_size();
  if (words.contains("hsdp")) {
    options.mesh = cohort::init_device_mesh("cpu", {world_size / 2, 2}, {"dp_replicate", "dp_shard"});
  }
  if (words.contains("replicate") && !words.contains("dims")) options.mesh = fsdp::replica_mesh(options);
  if (words.contains("dims")) name_axes(words, options);
  if (words.contains("keep")) options.reshard_after_forward = false;
  if (words.contains("let_go")) options.reshard_after_forward = true;
  if (words.contains("pairs")) options.reshard_after_forward = 2;
  if (words.contains("bf16")) options.mp_policy.param_dtype = at::kBFloat16;
  if (words.contains("float32_sums")) options.mp_policy.reduce_dtype = at::kFloat;
  if (words.contains("columns")) {
    options.shard_placement_fn = [](const at::Tensor& parameter) -> std::optional<cohort::Shard> {
      if (parameter.sizes() == at::IntArrayRef({10, 6})) return cohort::Shard(1);
      return std::nullopt;
    };
  }
  if (words.contains("experts") || words.contains("copied_experts")) {
    const auto square = cohort::init_device_mesh("cpu", {world_size / 2, 2}, {"dp_replicate", "dp_shard"});
    const auto mesh = words.contains("experts") ? square["dp_shard"] : square;
    options.shard_placement_fn = [mesh](const at::Tensor& parameter) -> fsdp::ShardPlacementResult {
      if (parameter.sizes() == at::IntArrayRef({6, 10})) return {cohort::Shard(0), mesh};
      return std::nullopt;
    };
  }
  return options;
}

std::shared_ptr<fsdp::test::ShardedNet> net_of(const Words& words) {
  return words.contains("list") ? fsdp::test::net_of_blocks_in_lists(options_of(words))
                                : fsdp::test::net_of_sharded_blocks(options_of(words));
}

fsdp::Options root_options(const Words& words) {
  auto options = options_of(words);
  if (words.contains("float32_output")) options.mp_policy.output_dtype = at::kFloat;
  return options;
}

class Training {
 public:
  explicit Training(const Words& words)
      : words_(words), model_(cohort::fully_shard(net_of(words), root_options(words))) {
    TORCH_CHECK(model_->sharding().follows_passes() != words_.contains("one_memory"));
    auto& blocks = model_->module().blocks;
    if (words_.contains("prefetch")) {
      model_->set_modules_to_forward_prefetch({blocks[0].get(), blocks[1].get()});
      blocks[0]->set_modules_to_forward_prefetch({blocks[2].get()});
      blocks[2]->set_modules_to_backward_prefetch({blocks[1].get(), blocks[0].get()});
    }
    for (auto* const module : modules()) {
      if (words_.contains("divide")) module->set_gradient_divide_factor(3);
      if (words_.contains("sums")) module->set_force_sum_reduction_for_comms(true);
      if (words_.contains("symm_mem")) module->set_symm_mem_for_comm();
      if (words_.contains("hook")) module->set_all_reduce_hook([](const at::Tensor& sum) { sum.mul_(0.5); });
    }
    if (words_.contains("separate")) model_->set_separate_reduce_scatter_group();
  }

  void run() {
    torch::optim::AdamW optimizer(model_->parameters(), torch::optim::AdamWOptions(0.01));
    for (int step = 0; step < 12; ++step) {
      const double loss = pass(step);
      double norm = 0;
      if (words_.contains("clip")) {
        norm = cohort::nn::utils::clip_grad_norm_(model_->parameters(), 0.1).item<double>();
      }
      optimizer.step();
      optimizer.zero_grad();
      auto sum = at::tensor({loss}, at::kDouble);
      cohort::all_reduce(sum);
      if (rank_ == 0) std::printf("step %.9g %.9g\n", sum.item<double>(), norm);
    }
    // As optimizers see them, which may be another dtype than modules do.
    std::map<std::string, at::Tensor> values;
    model_->write([&](const std::string& name, const at::Tensor& whole) { values[name] = whole.to(at::kDouble); });
    if (rank_ != 0) return;
    for (const auto& name : model_->named_parameters().keys()) {
      const auto flat = values.at(name).reshape({-1});
      for (int64_t i = 0; i < flat.numel(); ++i) std::printf("value %.9g\n", flat[i].item<double>());
    }
  }

 private:
  std::vector<fsdp::ShardedModule*> modules() {
    std::vector<fsdp::ShardedModule*> result = {model_.get()};
    for (auto& block : model_->module().blocks) result.push_back(block.get());
    return result;
  }

  double pass(int step) {
    const int num_micro = words_.contains("accumulate") || words_.contains("reduce_only") ? 3 : 1;
    double losses = 0;
    for (int micro = 0; micro < num_micro; ++micro) {
      const bool is_last = micro == num_micro - 1;
      if (words_.contains("accumulate")) model_->set_requires_gradient_sync(is_last);
      if (words_.contains("reduce_only")) model_->set_requires_all_reduce(is_last);
      if (words_.contains("stay")) model_->set_reshard_after_backward(is_last);
      if (words_.contains("not_last") && step > 0) model_->set_is_last_backward(is_last);
      const auto seed = 10 * step + micro;
      auto output = model_(fsdp::test::batch(rank_, seed));
      if (words_.contains("twice")) output = output + model_(fsdp::test::batch(rank_, seed + 5));
      const auto loss = fsdp::test::block_loss(output, rank_, seed);
      losses += loss.item<double>();
      loss.backward();
    }
    return losses;
  }

  const Words& words_;
  const int rank_ = cohort::get_rank();
  cohort::FullySharded<fsdp::test::ShardedNet> model_;
};

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  cohort::init_process_group({.backend = argv[1]});
  const Words words(argv + 2, argv + argc);
  {
    Training training(words);
    training.run();
    cohort::barrier();
  }
  cohort::destroy_process_group();
  return 0;
}
