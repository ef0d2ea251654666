// A C++ rank of fsdp-step. Variants: "fsdp" (fully_shard), "gathered" (fully_shard of each layer of an MLP, with parameters
// gathered and released although the ranks share memory), "ddp", "floor" (no communication: each rank trains its own model), all
// with the AdamW of the argument after the backend: "libtorch" or "fused". Commands: "copy VARIANT CASE" builds a case's module
// and data; "verify VARIANT" takes a step and answers with sums over all parameters afterwards; "run VARIANT.PART WARM STEPS"
// takes whole steps and answers with the milliseconds per step of PART: "step" all of it, "pass" forward, backward and
// communication, "optimizer" the rest; "memory" answers with the MiB (PSS) of this process, "formula VARIANT" with the MiB that
// fully_shard should add; "drop" frees all. fsdp_step_rank.py is the same program in Python.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "benchmarks/support/question.h"
#include "benchmarks/support/serve_commands.h"
#include "benchmarks/support/set_weights.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/comm/memory/shared_allocator.h"
#include "cohort/models/gpt.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/fsdp/host/host_layout.h"
#include "cohort/parallel/optim/fused_optimizers.h"

namespace cohort::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct FsdpTrainee {
  std::shared_ptr<torch::nn::Module> module;
  std::vector<at::Tensor> parameters;  // of the optimizer
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::function<at::Tensor(const at::Tensor&)> forward;
};

struct FsdpBatch {
  at::Tensor input;
  at::Tensor target;
};

std::unique_ptr<torch::optim::Optimizer> make_adamw(const std::string& kind,
                                                    const std::vector<at::Tensor>& parameters) {
  const torch::optim::AdamWOptions options(1e-4);
  if (kind == "fused") return std::make_unique<optim::AdamW>(parameters, options);
  return std::make_unique<torch::optim::AdamW>(parameters, options);
}

template <class Net>
FsdpTrainee shard_trainee(const std::shared_ptr<Net>& net, const std::string& optimizer,
                          const fsdp::Options& options = {}) {
  auto model = fully_shard(net, options);
  const auto shards = model->parameters();
  return {net, shards, make_adamw(optimizer, shards), [model](const at::Tensor& x) mutable { return model(x); }};
}

template <class Net>
FsdpTrainee make_fsdp_trainee(const std::shared_ptr<Net>& net, const std::string& variant,
                              const std::string& optimizer) {
  set_weights(*net);
  if (variant == "fsdp") return shard_trainee(net, optimizer);
  const auto parameters = net->parameters();
  if (variant == "ddp") {
    DistributedDataParallel<Net> ddp(net);
    return {net, parameters, make_adamw(optimizer, parameters), [ddp](const at::Tensor& x) mutable { return ddp(x); }};
  }
  return {net, parameters, make_adamw(optimizer, parameters), [net](const at::Tensor& x) { return net->forward(x); }};
}

// As in fsdp_step_rank.py: a group per layer with parameters.
FsdpTrainee make_gathered_trainee(const torch::nn::Sequential& net, const std::string& optimizer) {
  set_weights(*net);
  const fsdp::Options options{.one_memory = false};
  torch::nn::Sequential layers;
  for (const auto& layer : *net) {
    if (const auto linear = std::dynamic_pointer_cast<torch::nn::LinearImpl>(layer.ptr())) {
      layers->push_back(fully_shard(linear, options));
    } else {
      layers->push_back(layer);
    }
  }
  return shard_trainee(layers.ptr(), optimizer, options);
}

struct GptSize {
  int64_t layers, heads, width, vocabulary;
};

GptSize gpt_size(const std::string& name) {
  return name == "gpt-124m" ? GptSize{12, 12, 768, 50257} : GptSize{8, 8, 512, 256};
}

FsdpTrainee make_fsdp_trainee(const std::string& name, const std::string& variant, const std::string& optimizer) {
  if (name.starts_with("gpt-")) {
    const auto size = gpt_size(name);
    const models::GPTOptions options{.block_size = 128,
                                     .vocab_size = size.vocabulary,
                                     .n_layer = size.layers,
                                     .n_head = size.heads,
                                     .n_embd = size.width};
    return make_fsdp_trainee(models::GPT(options).ptr(), variant, optimizer);
  }
  const int64_t width = name == "mlp-4x4096" ? 4096 : 1024;
  torch::nn::Sequential net;
  for (int layer = 0; layer < 4; ++layer) {
    net->push_back(torch::nn::Linear(width, width));
    if (layer < 3) net->push_back(torch::nn::ReLU());
  }
  if (variant == "gathered") return make_gathered_trainee(net, optimizer);
  return make_fsdp_trainee(net.ptr(), variant, optimizer);
}

FsdpBatch make_fsdp_batch(const std::string& name, int rank) {
  torch::manual_seed(100 + rank);
  if (name.starts_with("gpt-")) {
    const auto tokens = at::randint(0, gpt_size(name).vocabulary, {1, 129}, at::kLong);
    return {tokens.narrow(1, 0, 128), tokens.narrow(1, 1, 128)};
  }
  const int64_t width = name == "mlp-4x4096" ? 4096 : 1024;
  const auto input = at::randn({32, width});
  return {input, at::randn({32, width})};
}

std::string pss_in_mib() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    if (line.starts_with("Pss:")) return std::to_string(std::stod(line.substr(4)) / 1024);
  }
  return "0";
}

// This rank's shard of parameters, gradients and AdamW's two averages, which the ranks hold once, and two chunks in transit.
std::string formula_in_mib(const torch::nn::Module& module) {
  size_t num_bytes = 0, chunk_bytes = fsdp::kChunkBytes;
  for (const auto& parameter : module.parameters()) {
    num_bytes += parameter.nbytes();
    chunk_bytes = std::max(chunk_bytes, parameter.nbytes());  // a parameter is never split
  }
  const auto bytes = 4.0 * static_cast<double>(num_bytes) / get_world_size() + 2.0 * static_cast<double>(chunk_bytes);
  return std::to_string(bytes / (1 << 20));
}

class FsdpRank {
 public:
  FsdpRank(int rank, std::string optimizer) : rank_(rank), optimizer_(std::move(optimizer)) {}

  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string verb, variant, name;
    words >> verb >> variant;
    if (verb == "copy") {
      words >> name;
      trainees_.emplace(variant, make_fsdp_trainee(name, variant, optimizer_));
      batch_ = make_fsdp_batch(name, rank_);
      return "ok";
    }
    if (verb == "drop") {
      trainees_.clear();
      batch_ = {};
      comm::empty_shared_allocator_cache();
      return "ok";
    }
    if (verb == "memory") return pss_in_mib();
    if (verb == "formula") return formula_in_mib(*trainees_.at(variant).module);
    if (verb == "verify") return sums_after_step(trainees_.at(variant), variant == "gathered");
    int num_warm = 0, num_steps = 0;
    words >> num_warm >> num_steps;
    const auto dot = variant.find('.');
    return run_steps(trainees_.at(variant.substr(0, dot)), variant.substr(dot + 1), num_warm, num_steps);
  }

 private:
  // Returns when the optimizer began.
  Clock::time_point step(FsdpTrainee& trainee) {
    namespace functional = torch::nn::functional;
    trainee.optimizer->zero_grad();
    const auto output = trainee.forward(batch_.input);
    const auto loss = batch_.target.scalar_type() == at::kLong
                          ? functional::cross_entropy(output.flatten(0, 1), batch_.target.flatten())
                          : functional::mse_loss(output, batch_.target);
    loss.backward();
    const auto begin = Clock::now();
    trainee.optimizer->step();
    return begin;
  }

  std::string sums_after_step(FsdpTrainee& trainee, bool is_in_parts) {
    step(trainee);
    barrier();
    at::Tensor sums = at::zeros({2}, at::kDouble);
    for (const auto& parameter : is_in_parts ? trainee.parameters : trainee.module->parameters()) {
      const auto values = parameter.detach().to(at::kDouble);
      sums += at::stack({values.sum(), values.square().sum()});
    }
    if (is_in_parts) all_reduce(sums);
    barrier();
    std::ostringstream text;
    text.precision(10);
    text << sums[0].item<double>() << " " << sums[1].item<double>();
    return text.str();
  }

  std::string run_steps(FsdpTrainee& trainee, const std::string& part, int num_warm, int num_steps) {
    for (int i = 0; i < num_warm; ++i) step(trainee);
    std::chrono::duration<double> elapsed{};
    for (int i = 0; i < num_steps; ++i) {
      const auto begin = Clock::now();
      const auto middle = step(trainee);
      const auto end = Clock::now();
      if (part != "optimizer") elapsed += middle - begin;
      if (part != "pass") elapsed += end - middle;
    }
    return std::to_string(elapsed.count() * 1e3 / num_steps);
  }

  int rank_;
  std::string optimizer_;
  std::map<std::string, FsdpTrainee> trainees_;
  FsdpBatch batch_;
};

}  // namespace

int run_fsdp_step_rank(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  const int rank = std::stoi(arguments.at(3));
  init_process_group({.backend = arguments.at(1),
                      .init_method = arguments.at(5),
                      .world_size = std::stoi(arguments.at(0)),
                      .rank = rank});
  {
    FsdpRank state(rank, arguments.at(2));
    serve_commands(arguments.at(4), [&](const std::string& command) { return state.answer(command); });
  }
  destroy_process_group();
  return 0;
}

}  // namespace cohort::bench
