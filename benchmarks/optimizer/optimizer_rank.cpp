// The C++ process of `optimizer`. Commands: "copy SIDE CASE" makes parameters, gradients and an optimizer, ours or LibTorch's;
// "verify SIDE" answers with sums of the parameters after three steps; "run SIDE WARM STEPS" with the milliseconds per step;
// "drop" frees all.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/core.h>

#include <chrono>
#include <map>
#include <memory>
#include <sstream>
#include <thread>

#include "benchmarks/ddp/parameter_set.h"
#include "benchmarks/support/question.h"
#include "benchmarks/support/serve_commands.h"
#include "cohort/parallel/optim/fused_optimizers.h"

namespace cohort::bench {
namespace {

using std::chrono::steady_clock;
using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

// The same as in optimizer_rank.py.
std::vector<at::Tensor> optimizer_parameters() {
  at::manual_seed(7);
  std::vector<at::Tensor> parameters;
  for (const auto& shape : resnet50_shapes()) {
    parameters.push_back(at::rand(shape, at::kFloat).set_requires_grad(true));
    parameters.back().mutable_grad() = at::rand(shape, at::kFloat) - 0.4;
  }
  return parameters;
}

template <class Ours, class Theirs, class Options>
std::unique_ptr<torch::optim::Optimizer> one_of(bool is_ours, std::vector<at::Tensor> parameters, Options options) {
  if (is_ours) return std::make_unique<Ours>(std::move(parameters), options);
  return std::make_unique<Theirs>(std::move(parameters), options);
}

std::unique_ptr<torch::optim::Optimizer> optimizer_of(const std::string& what, bool is_ours,
                                                      const std::vector<at::Tensor>& parameters) {
  namespace lib = torch::optim;
  if (what == "adamw") return one_of<optim::AdamW, lib::AdamW>(is_ours, parameters, AdamWOptions(1e-3));
  if (what == "adam") {
    return one_of<optim::Adam, lib::Adam>(is_ours, parameters, AdamOptions(1e-3).weight_decay(1e-4));
  }
  SGDOptions options(1e-2);
  if (what != "sgd") options.momentum(0.9).weight_decay(1e-4).nesterov(what == "sgd-nesterov");
  return one_of<optim::SGD, lib::SGD>(is_ours, parameters, options);
}

struct OptimizerSide {
  std::vector<at::Tensor> parameters = optimizer_parameters();
  std::unique_ptr<torch::optim::Optimizer> optimizer;

  OptimizerSide(const std::string& what, bool is_ours) : optimizer(optimizer_of(what, is_ours, parameters)) {}

  std::string sums_after_three_steps() const {
    for (int i = 0; i < 3; ++i) optimizer->step();
    double sum = 0, squares = 0;
    for (const auto& parameter : parameters) {
      sum += parameter.detach().sum(at::kDouble).item<double>();
      squares += parameter.detach().square().sum(at::kDouble).item<double>();
    }
    return fmt::format("{:.14g} {:.14g}", sum, squares);
  }

  double run(int num_warm, int num_steps) const {
    for (int i = 0; i < num_warm; ++i) optimizer->step();
    const auto begin = steady_clock::now();
    for (int i = 0; i < num_steps; ++i) optimizer->step();
    return std::chrono::duration<double, std::milli>(steady_clock::now() - begin).count() / num_steps;
  }
};

std::string answer_of_optimizers(std::map<std::string, OptimizerSide>& sides, const std::string& line) {
  std::istringstream words(line);
  std::string verb, side, what;
  words >> verb >> side;
  if (verb == "drop") {
    sides.clear();
    return "ok";
  }
  if (verb == "copy") {
    words >> what;
    sides.erase(side);
    sides.emplace(std::piecewise_construct, std::forward_as_tuple(side), std::forward_as_tuple(what, side == "ours"));
    return "ok";
  }
  if (verb == "verify") return sides.at(side).sums_after_three_steps();
  int num_warm = 0, num_steps = 0;
  words >> num_warm >> num_steps;
  return fmt::format("{:.6f}", sides.at(side).run(num_warm, num_steps));
}

}  // namespace

int run_optimizer_rank(const std::vector<std::string>& arguments) {
  at::set_num_threads(static_cast<int>(std::thread::hardware_concurrency()));
  std::map<std::string, OptimizerSide> sides;
  serve_commands(arguments.at(1), [&](const std::string& line) { return answer_of_optimizers(sides, line); });
  return 0;
}

}  // namespace cohort::bench
