// A C++ rank of ddp-step and fused-step, with two groups of both ranks: our backend and Gloo. Variants: "ours", "c10d"
// (c10d::Reducer on our backend), "gloo" (ours on Gloo), "beside" and "after" (ours, with buckets reduced while backward runs, or
// after it), "plain" (no DDP), "meeting" (no DDP, but an all-reduce of as many numbers after each backward: the cost of any step
// in which ranks wait for each other), "fused" (ours with the optimizer's step inside). Cases whose name begins with "adamw-"
// train with AdamW on one row and verify parameters; the others train with SGD and verify gradients. Commands: "copy VARIANT
// CASE" builds a case's module and data; "verify VARIANT" takes a first step and answers with sums of the verified values; "run
// VARIANT WARM STEPS" answers with the milliseconds per step; "drop" frees all. ddp_step_rank.py is the same program in Python:
// same weights, same data, same steps.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>

#include "benchmarks/ddp/parameter_set.h"
#include "benchmarks/support/question.h"
#include "benchmarks/support/serve_commands.h"
#include "benchmarks/support/set_weights.h"
#include "cohort/base/system/env.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/extras/models/resnet.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/ddp/hooks/all_reduce_hook.h"

namespace cohort::bench {
namespace {

constexpr double kLearningRate = 1e-4;

struct Batch {
  at::Tensor input;
  at::Tensor target;
};

// A copy of the case's module, trained in one way.
struct Trainee {
  std::shared_ptr<torch::nn::Module> module;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::function<at::Tensor(const at::Tensor&)> forward;  // holds the wrapper, which holds the optimizer
  std::function<void()> meet = [] {};                    // after each backward
  bool has_views = false;  // gradients are c10d::Reducer's views, which LibTorch's optimizers cannot detach
};

struct Groups {
  Group ours;
  Group gloo;
};

bool is_adamw(const std::string& case_name) { return case_name.starts_with("adamw-"); }

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& case_name, const torch::nn::Module& net) {
  if (is_adamw(case_name)) return std::make_unique<torch::optim::AdamW>(net.parameters(), kLearningRate);
  return std::make_unique<torch::optim::SGD>(net.parameters(), kLearningRate);
}

int64_t num_numbers(const torch::nn::Module& module) {
  int64_t total = 0;
  for (const auto& parameter : module.parameters()) total += parameter.numel();
  return total;
}

std::function<void()> all_reduce_of(int64_t count, const Group& group) {
  c10d::AllreduceOptions options;
  options.asyncOp = false;
  return [group, options, tensors = std::vector<at::Tensor>{at::zeros({count})}]() mutable {
    group->getBackend(at::kCPU)->allreduce(tensors, options)->wait();
  };
}

template <class Net>
Trainee make_trainee(const std::shared_ptr<Net>& net, const std::string& name, const std::string& variant,
                     const Groups& groups) {
  Trainee trainee{net, make_optimizer(name, *net), {}};
  set_weights(*net);
  if (variant == "plain" || variant == "meeting") {
    if (variant == "meeting") trainee.meet = all_reduce_of(num_numbers(*net), groups.ours);
    trainee.forward = [net](const at::Tensor& x) { return net->forward(x); };
    return trainee;
  }
  ddp::Options options;
  options.init_sync = false;  // all ranks draw weights from one seed
  options.process_group = variant == "gloo" ? groups.gloo : groups.ours;
  options.engine = variant == "c10d" ? ddp::Engine::kC10d : ddp::Engine::kCohort;
  options.find_unused_parameters = name.ends_with("-unused");
  options.gradient_as_bucket_view = trainee.has_views = name.ends_with("-view");
  if (variant == "beside") base::set_env("COHORT_DDP_OVERLAP", "1");
  if (variant == "after") base::set_env("COHORT_DDP_OVERLAP", "0");
  DistributedDataParallel<Net> ddp(net, options);
  if (variant == "beside" || variant == "after") base::unset_env("COHORT_DDP_OVERLAP");
  if (name.ends_with("-hook")) ddp->register_comm_hook(options.process_group, ddp::allreduce_hook);
  if (variant == "fused") ddp->fuse_step(*trainee.optimizer);
  trainee.forward = [ddp](const at::Tensor& x) mutable { return ddp(x); };
  return trainee;
}

std::shared_ptr<torch::nn::SequentialImpl> make_mlp(int64_t width) {
  torch::nn::Sequential net;
  for (int layer = 0; layer < 4; ++layer) {
    net->push_back(torch::nn::Linear(width, width));
    if (layer < 3) net->push_back(torch::nn::ReLU());
  }
  return net.ptr();
}

// Returns the case without DDP's option, which follows the last dash.
std::string net_of(const std::string& name) {
  for (const char* option : {"-unused", "-view", "-hook"}) {
    if (name.ends_with(option)) return name.substr(0, name.size() - std::strlen(option));
  }
  return name;
}

Shapes shapes_of(const std::string& name) {
  return name == "resnet50-parameters" ? resnet50_shapes() : gpt_124m_shapes();
}

int64_t mlp_width(const std::string& name) { return name.find("-4x4096") != std::string::npos ? 4096 : 1024; }

Trainee make_trainee(const std::string& name, const std::string& variant, const Groups& groups) {
  if (name == "linear-20x1") return make_trainee(torch::nn::Linear(20, 1).ptr(), name, variant, groups);
  const auto net = net_of(name);
  if (net.ends_with("-parameters")) {
    return make_trainee(std::make_shared<ParameterSet>(shapes_of(net)), name, variant, groups);
  }
  if (net == "resnet18") {
    const models::ResNetOptions options{.num_classes = 10, .is_small_input = true};
    return make_trainee(models::resnet18(options).ptr(), name, variant, groups);
  }
  return make_trainee(make_mlp(mlp_width(name)), name, variant, groups);
}

Batch make_batch(const std::string& name, int rank) {
  torch::manual_seed(100 + rank);
  if (name == "linear-20x1") {
    const auto input = at::randn({32, 20});
    return {input, at::randn({32, 1})};
  }
  if (net_of(name).ends_with("-parameters")) {
    const auto input = at::randn({16, num_inputs(shapes_of(net_of(name)))});
    return {input, at::randn({})};
  }
  if (net_of(name) == "resnet18") {
    const auto input = at::randn({2, 3, 32, 32});
    return {input, at::randint(0, 10, {2}, at::kLong)};
  }
  const int64_t num_rows = is_adamw(name) ? 1 : 32;
  const auto input = at::randn({num_rows, mlp_width(name)});
  return {input, at::randn({num_rows, mlp_width(name)})};
}

class Rank {
 public:
  Rank(int rank, Groups groups) : rank_(rank), groups_(std::move(groups)) {}

  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string verb, variant, name;
    words >> verb >> variant;
    if (verb == "copy") {
      words >> name;
      trainees_.emplace(variant, make_trainee(name, variant, groups_));
      batch_ = make_batch(name, rank_);
      verifies_parameters_ = is_adamw(name);
      return "ok";
    }
    if (verb == "drop") {
      trainees_.clear();
      return "ok";
    }
    auto& trainee = trainees_.at(variant);
    if (verb == "verify") return sums_after_step(trainee);
    int num_warm = 0, num_steps = 0;
    words >> num_warm >> num_steps;
    return run_steps(trainee, num_warm, num_steps);
  }

 private:
  static void clear_gradients(Trainee& trainee) {
    if (!trainee.has_views) return trainee.optimizer->zero_grad();
    for (const auto& parameter : trainee.optimizer->param_groups().front().params()) parameter.mutable_grad().reset();
  }

  void step(Trainee& trainee) {
    namespace functional = torch::nn::functional;
    clear_gradients(trainee);
    const auto output = trainee.forward(batch_.input);
    const auto loss = batch_.target.scalar_type() == at::kLong ? functional::cross_entropy(output, batch_.target)
                                                               : functional::mse_loss(output, batch_.target);
    loss.backward();
    trainee.meet();
    trainee.optimizer->step();
  }

  std::string sums_after_step(Trainee& trainee) {
    step(trainee);
    double sum = 0, squares = 0;
    for (const auto& parameter : trainee.module->parameters()) {
      const auto& tensor = verifies_parameters_ ? parameter : parameter.grad();
      sum += tensor.sum(at::kDouble).item<double>();
      squares += tensor.square().sum(at::kDouble).item<double>();
    }
    std::ostringstream text;
    text.precision(10);
    text << sum << " " << squares;
    return text.str();
  }

  std::string run_steps(Trainee& trainee, int num_warm, int num_steps) {
    for (int i = 0; i < num_warm; ++i) step(trainee);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < num_steps; ++i) step(trainee);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    return std::to_string(elapsed.count() * 1e3 / num_steps);
  }

  int rank_;
  Groups groups_;
  std::map<std::string, Trainee> trainees_;
  Batch batch_;
  bool verifies_parameters_ = false;
};

}  // namespace

int run_ddp_step_rank(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  const std::string& backend = arguments.at(0);
  const int rank = std::stoi(arguments.at(1));
  InitOptions options;
  options.backend = "gloo";
  options.init_method = arguments.at(3);
  options.rank = rank;
  options.world_size = 2;
  init_process_group(options);
  {
    Rank state(rank, {.ours = new_group({}, {.backend = backend}), .gloo = default_group()});
    serve_commands(arguments.at(2), [&](const std::string& command) { return state.answer(command); });
  }
  destroy_process_group();
  return 0;
}

}  // namespace cohort::bench
