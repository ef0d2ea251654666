// optim_rank BACKEND RESULT: clipped gradients, and averaged models after several steps, on this rank.
// optim_python_rank.py makes the same calls.
#include <ATen/ATen.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <functional>
#include <iostream>
#include <limits>
#include <sstream>
#include <string>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/optim/post_local_sgd_optimizer.h"

namespace {

namespace optim = cohort::optim;
namespace utils = cohort::nn::utils;
using Results = cohort::checkpoint::StateDict;
using Parameters = std::vector<at::Tensor>;

constexpr int kNumSteps = 9;

at::Tensor leaf(const at::Tensor& value) { return value.detach().clone().set_requires_grad(true); }

// float32, float64 and a parameter without a gradient, in an order that groups by dtype must keep.
Parameters parameters_with_gradients(int seed) {
  at::manual_seed(seed);
  Parameters parameters;
  const std::vector<std::vector<int64_t>> shapes{{7}, {3, 5}, {}, {130}, {2, 3, 4}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    const auto dtype = i % 2 == 0 ? at::kFloat : at::kDouble;
    auto parameter = leaf(at::zeros(shapes[i], dtype));
    parameter.mutable_grad() = at::randn(shapes[i], at::kFloat).to(dtype);
    parameters.push_back(parameter);
  }
  parameters.push_back(leaf(at::zeros({4})));
  return parameters;
}

void clip(Results& results) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<std::string, double>> orders{{"1", 1}, {"2", 2},           {"3.5", 3.5},
                                                           {"0", 0}, {"inf", kInfinity}, {"-inf", -kInfinity}};
  const std::vector<std::pair<std::string, std::optional<bool>>> ways{{"none", {}}, {"true", true}, {"false", false}};
  const auto record = [&](const std::string& name, const Parameters& parameters) {
    for (size_t i = 0; i + 1 < parameters.size(); ++i) {
      results.insert(name + "." + std::to_string(i), parameters[i].grad().clone());
    }
  };
  int seed = 0;
  for (const auto& [way, foreach] : ways) {
    for (const auto& [order, norm_type] : orders) {
      for (const double max_norm : {0.7, 1e9}) {
        const auto name = "clip." + way + "." + order + (max_norm < 1 ? ".small" : ".large");
        const auto parameters = parameters_with_gradients(++seed);
        results.insert(name + ".norm", utils::clip_grad_norm_(parameters, max_norm, norm_type, false, foreach));
        record(name, parameters);
      }
    }
    const auto parameters = parameters_with_gradients(++seed);
    utils::clip_grad_value_(parameters, 0.3, foreach);
    record("value." + way, parameters);
    utils::clip_grads_with_norm_(parameters, 0.1, at::scalar_tensor(3.0), foreach);
    record("with_norm." + way, parameters);
    results.insert("total." + way, utils::get_total_norm({parameters[0], parameters[0].grad()}, 2, false, foreach));
  }
}

// The same start on all ranks, other gradients on each; the last parameter never has one.
class LocalSteps {
 public:
  explicit LocalSteps(int scheme) {
    at::manual_seed(100 + scheme);
    for (const auto& shape : std::vector<std::vector<int64_t>>{{3, 4}, {5}, {2}}) {
      parameters.push_back(leaf(at::randn(shape)));
    }
    parameters[1] = leaf(parameters[1].to(at::kDouble));
  }
  void set_gradients(int step) {
    at::manual_seed(1000 * step + cohort::get_rank());
    for (size_t i = 0; i < 2; ++i) {
      parameters[i].mutable_grad() = at::randn(parameters[i].sizes(), at::kFloat).to(parameters[i].dtype());
    }
  }
  void record(Results& results, const std::string& name, int step) const {
    for (size_t i = 0; i < parameters.size(); ++i) {
      results.insert(name + "." + std::to_string(step) + "." + std::to_string(i), parameters[i].detach().clone());
    }
  }

  Parameters parameters;
};

void average(Results& results, const std::string& name, optim::ModelAverager& averager) {
  LocalSteps local(1);
  torch::optim::SGD optimizer(local.parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < kNumSteps; ++step) {
    local.set_gradients(step);
    optimizer.step();
    averager.average_parameters(local.parameters);
    local.record(results, name, step);
  }
}

void post_local_sgd(Results& results) {
  LocalSteps local(2);
  const torch::optim::SGDOptions options = torch::optim::SGDOptions(0.1).momentum(0.9);
  std::stringstream file;
  const auto run = [&](int begin, int end) {
    torch::optim::SGD sgd({{{local.parameters[0]}}, {{local.parameters[1], local.parameters[2]}}}, options);
    optim::PeriodicModelAverager averager(/*period=*/2, /*warmup_steps=*/3);
    optim::PostLocalSGDOptimizer optimizer(sgd, averager);
    if (begin > 0) torch::load(optimizer, file);
    for (int step = begin; step < end; ++step) {
      local.set_gradients(step);
      optimizer.step();
      local.record(results, "post_local", step);
      results.insert("post_local." + std::to_string(step) + ".step", at::scalar_tensor(averager.step, at::kLong));
    }
    torch::save(optimizer, file);
  };
  run(0, 4);
  run(4, kNumSteps);
}

}  // namespace

int main(int, char** argv) {
  try {
    cohort::init_process_group(argv[1]);
    Results results;
    clip(results);
    optim::PeriodicModelAverager periodic(/*period=*/3, /*warmup_steps=*/2);
    average(results, "periodic", periodic);
    optim::HierarchicalModelAverager hierarchical({{2, 2}, {4, cohort::get_world_size()}}, /*warmup_steps=*/1);
    average(results, "hierarchical", hierarchical);
    post_local_sgd(results);
    cohort::checkpoint::save_file(results, argv[2]);
    cohort::destroy_process_group();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
