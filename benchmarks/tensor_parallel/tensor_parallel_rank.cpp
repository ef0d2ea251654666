// A C++ rank of tensor-parallel. Variants: "tp" (the block of python_step_rank.py with parallelize_module), "floor" (a plain
// block of half the heads and half the inner width, which is a rank's share of the work, without communication), "one-process"
// (the whole block). All use LibTorch's SGD. The commands are those of training_rank.py: "copy VARIANT CASE", "verify VARIANT",
// "run VARIANT WARM STEPS", "drop".
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <map>
#include <memory>
#include <sstream>

#include "benchmarks/support/question.h"
#include "benchmarks/support/serve_commands.h"
#include "benchmarks/support/set_weights.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/parallel/tensor/parallelize_module.h"

namespace cohort::bench {
namespace {

constexpr int64_t kHeadSize = 64;

// `inner`: outputs of the column-wise sharded maps; in the whole block it equals the width.
struct TensorParallelBlockImpl : torch::nn::Module {
  TensorParallelBlockImpl(int64_t width, int64_t inner) {
    const auto add_norm = [&](const char* name) {
      return register_module(name, torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    };
    const auto add_map = [&](const char* name, int64_t in, int64_t out) {
      return register_module(name, torch::nn::Linear(in, out));
    };
    norm1 = add_norm("norm1");
    query = add_map("query", width, inner);
    key = add_map("key", width, inner);
    value = add_map("value", width, inner);
    output = add_map("output", inner, width);
    norm2 = add_norm("norm2");
    up = add_map("up", width, 4 * inner);
    down = add_map("down", 4 * inner, width);
  }

  at::Tensor forward(const at::Tensor& x) {
    const auto y = norm1(x);
    const auto heads = [&](torch::nn::Linear& layer) {
      return layer(y).unflatten(-1, {-1, kHeadSize}).transpose(1, 2);
    };
    const auto attended =
        at::scaled_dot_product_attention(heads(query), heads(key), heads(value), {}, 0, /*is_causal=*/true);
    const auto z = x + output(attended.transpose(1, 2).flatten(2));
    return z + down(at::gelu(up(norm2(z))));
  }

  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  torch::nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, output{nullptr}, up{nullptr}, down{nullptr};
};
TORCH_MODULE(TensorParallelBlock);

at::Tensor own_shard(const at::Tensor& tensor) { return is_dtensor(tensor) ? DTensor(tensor).to_local() : tensor; }

class TensorParallelTrainee {
 public:
  // `name`: "tp/block-1024/tokens=64".
  TensorParallelTrainee(const std::string& variant, const std::string& name)
      : width_(std::stoll(name.substr(name.find('-') + 1))), block_(width_, variant == "floor" ? width_ / 2 : width_) {
    set_weights(*block_);
    const auto num_tokens = std::stoll(name.substr(name.find('=') + 1));
    at::manual_seed(100);
    input_ = at::randn({1, num_tokens, width_});
    target_ = at::randn({1, num_tokens, width_});
    if (variant == "tp") {
      parallelize_module(*block_, init_device_mesh("cpu", {get_world_size()}, {"tp"}),
                         {{"query", ColwiseParallel{.num_heads = width_ / kHeadSize}},
                          {"key", ColwiseParallel()},
                          {"value", ColwiseParallel()},
                          {"up", ColwiseParallel()},
                          {"output", RowwiseParallel()},
                          {"down", RowwiseParallel()}});
    }
    optimizer_ = std::make_unique<torch::optim::SGD>(block_->parameters(), torch::optim::SGDOptions(1e-4));
  }

  at::Tensor step() {
    optimizer_->zero_grad();
    const auto loss = torch::nn::functional::mse_loss(block_(input_), target_);
    loss.backward();
    optimizer_->step();
    return loss;
  }

  // Returns the second step's loss and gradients, which depend on the first step's update.
  std::string two_steps() {
    step();
    const auto loss = step().detach();
    double sum = 0, squares = 0;
    for (const auto& parameter : block_->parameters()) {
      const auto gradient = own_shard(parameter.grad()).to(at::kDouble);
      sum += gradient.sum().item<double>();
      squares += gradient.square().sum().item<double>();
    }
    std::ostringstream text;
    text.precision(10);
    text << (is_dtensor(loss) ? DTensor(loss).full_tensor() : loss).item<double>() << " " << sum << " " << squares;
    return text.str();
  }

 private:
  int64_t width_;
  TensorParallelBlock block_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  at::Tensor input_, target_;
};

class TensorParallelRank {
 public:
  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string verb, variant, name;
    words >> verb >> variant;
    if (verb == "copy") {
      words >> name;
      trainees_.emplace(variant, TensorParallelTrainee(variant, name));
      return "ok";
    }
    if (verb == "drop") {
      trainees_.clear();
      return "ok";
    }
    auto& trainee = trainees_.at(variant);
    if (verb == "verify") return trainee.two_steps();
    int num_warm = 0, num_steps = 0;
    words >> num_warm >> num_steps;
    for (int i = 0; i < num_warm; ++i) trainee.step();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < num_steps; ++i) trainee.step();
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - begin;
    return std::to_string(elapsed.count() / num_steps);
  }

 private:
  std::map<std::string, TensorParallelTrainee> trainees_;
};

}  // namespace

int run_tensor_parallel_rank(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  init_process_group({.backend = arguments.at(1),
                      .init_method = arguments.at(4),
                      .world_size = std::stoi(arguments.at(0)),
                      .rank = std::stoi(arguments.at(2))});
  {
    TensorParallelRank rank;
    serve_commands(arguments.at(3), [&](const std::string& command) { return rank.answer(command); });
  }
  destroy_process_group();
  return 0;
}

}  // namespace cohort::bench
