// A simulation code that learns: a network represents the unknown force in a time-stepping solver, and every rank solves for its
// own initial states. There is no torch::nn::Module to wrap; the program averages the gradients of a list of tensors. It times
// the ways to do so:
//
//   build/bin/cohort run --standalone --nproc-per-node 2 build/bin/examples/simulation
//
// prints a line per way, on rank 0, with the time of a step (solver, backward, communication, update) and the last loss:
//   one Reducer                  median    21.34 ms  fastest    20.12 ms  loss 0.0123
// and ends with an error if the results of the ways differ.
#include <cohort/comm/collectives/coalescing.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/parallel/ddp/reducer.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

struct Settings {
  int64_t width = 512;
  int64_t layers = 6;
  int64_t solver_steps = 1;
  int64_t states = 32;
  int rounds = 40;
  std::string backend = {};
};

using Tensors = std::vector<at::Tensor>;

// Returns weight and bias of each layer, which are the same on every rank, as all ranks use one seed.
Tensors make_parameters(const Settings& settings) {
  torch::manual_seed(1);
  Tensors parameters;
  for (int64_t layer = 0; layer < settings.layers; ++layer) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(settings.width));
    parameters.push_back((scale * torch::randn({settings.width, settings.width})).requires_grad_());
    parameters.push_back(torch::zeros({settings.width}).requires_grad_());
  }
  return parameters;
}

at::Tensor force(const Tensors& parameters, at::Tensor x) {
  for (size_t i = 0; i < parameters.size(); i += 2) {
    x = torch::addmm(parameters[i + 1], x, parameters[i]);
    if (i + 2 < parameters.size()) x = torch::tanh(x);
  }
  return x;
}

// Makes explicit Euler steps. The force is correct if it damps every state by the factor e.
at::Tensor solve(const Tensors& parameters, const at::Tensor& initial, int64_t num_steps) {
  at::Tensor state = initial;
  for (int64_t step = 0; step < num_steps; ++step) state = state + force(parameters, state) / num_steps;
  return (state - std::exp(-1.0) * initial).pow(2).mean();
}

// A way to average gradients over the ranks: functions to call before and after backward().
struct Way {
  std::string name;
  Tensors parameters;
  std::function<void()> before = [] {};
  std::function<void()> after = [] {};
  std::vector<double> milliseconds = {};
  double loss = 0;
};

Tensors gradients_of(const Tensors& parameters) {
  Tensors gradients;
  for (const auto& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

std::vector<Way> make_ways(const Settings& settings) {
  std::vector<Way> ways;
  ways.reserve(5);
  const auto add = [&](const char* name) -> Way& { return ways.emplace_back(Way{name, make_parameters(settings)}); };
  add("nothing exchanged");
  auto& each = add("all_reduce of each gradient");
  each.after = [parameters = each.parameters] {
    for (const auto& gradient : gradients_of(parameters)) cohort::all_reduce(gradient, cohort::ReduceOp::AVG);
  };
  auto& together = add("all_reduce_coalesced");
  together.after = [parameters = together.parameters] {
    cohort::all_reduce_coalesced(gradients_of(parameters), {.op = cohort::ReduceOp::AVG});
  };
  auto& layers = add("a Reducer per layer");
  auto reducers = std::make_shared<std::vector<std::unique_ptr<cohort::ddp::Reducer>>>();
  for (size_t i = 0; i < layers.parameters.size(); i += 2) {
    reducers->push_back(
        std::make_unique<cohort::ddp::Reducer>(Tensors{layers.parameters[i], layers.parameters[i + 1]}));
  }
  layers.before = [reducers] {
    for (auto& reducer : *reducers) reducer->prepare();
  };
  auto& whole = add("one Reducer");
  auto reducer = std::make_shared<cohort::ddp::Reducer>(whole.parameters);
  whole.before = [reducer] { reducer->prepare(); };
  return ways;
}

void train_step(Way& way, const at::Tensor& initial, const Settings& settings) {
  for (auto& parameter : way.parameters) parameter.mutable_grad() = at::Tensor();
  way.before();
  const at::Tensor loss = solve(way.parameters, initial, settings.solver_steps);
  loss.backward();
  way.after();
  const torch::NoGradGuard no_grad;
  for (auto& parameter : way.parameters) parameter.sub_(parameter.grad(), /*alpha=*/0.1);
  way.loss = loss.item<double>();
}

void time_step(Way& way, const at::Tensor& initial, const Settings& settings) {
  cohort::barrier();
  const auto begin = std::chrono::steady_clock::now();
  train_step(way, initial, settings);
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  const at::Tensor slowest = torch::tensor(time.count(), torch::kDouble);
  cohort::all_reduce(slowest, cohort::ReduceOp::MAX);
  way.milliseconds.push_back(slowest.item<double>());
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Times the ways to average the gradients of a simulation code");
  app.add_option("--width", settings.width, "Numbers per state")->capture_default_str();
  app.add_option("--layers", settings.layers, "Layers of the network")->capture_default_str();
  app.add_option("--solver-steps", settings.solver_steps, "Time steps per solution")->capture_default_str();
  app.add_option("--states", settings.states, "Initial states per rank and step")->capture_default_str();
  app.add_option("--rounds", settings.rounds, "Training steps of each way")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--backend", settings.backend, "shm or gloo (default: shm, or gloo on several hosts)");
  CLI11_PARSE(app, argc, argv);

  cohort::init_process_group({.backend = settings.backend});
  const int rank = cohort::get_rank();
  {
    auto ways = make_ways(settings);
    for (int round = 0; round < settings.rounds; ++round) {
      torch::manual_seed(1000 * round + rank);  // each rank has its own states, the same for every way
      const at::Tensor initial = torch::randn({settings.states, settings.width});
      for (size_t i = 0; i < ways.size(); ++i) time_step(ways[(i + round) % ways.size()], initial, settings);
    }
    for (const auto& way : ways) {
      if (rank == 0) {
        std::printf("%-28s median %8.2f ms  fastest %8.2f ms  loss %.4f\n", way.name.c_str(), median(way.milliseconds),
                    *std::min_element(way.milliseconds.begin(), way.milliseconds.end()), way.loss);
      }
    }
    for (size_t i = 2; i < ways.size(); ++i) {
      const auto difference = (ways[i].parameters[0] - ways[1].parameters[0]).abs().max().item<double>();
      TORCH_CHECK(difference < 1e-4, ways[i].name, " differs from ", ways[1].name, " by ", difference);
    }
  }
  cohort::destroy_process_group();
}
