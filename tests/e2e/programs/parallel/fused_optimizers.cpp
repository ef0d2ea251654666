// fused_optimizers RESULT: parameters and state of all cases after each step.
// tests/e2e/parallel/fused_optimizers_test.py takes the same steps.
#include <ATen/ATen.h>

#include <iostream>
#include <memory>
#include <string>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/parallel/optim/fused_optimizers.h"

namespace {

using Parameters = std::vector<at::Tensor>;
using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

constexpr int kNumSteps = 20;

// Complex ones have imaginary parts of their own.
at::Tensor drawn(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::isComplexType(dtype) ? at::randn(shape, dtype) : at::randn(shape, at::kFloat).to(dtype);
}

// One without elements, one of several dimensions, a number, and the last one without a gradient.
Parameters parameters_of(at::ScalarType dtype) {
  at::manual_seed(7);
  Parameters parameters;
  for (const auto& shape : std::vector<std::vector<int64_t>>{{257}, {0, 3}, {5, 3, 2}, {}, {1031}, {2}}) {
    parameters.push_back(drawn(shape, dtype).set_requires_grad(true));
  }
  return parameters;
}

// The third one's are missing in every third step.
void set_gradients(const Parameters& parameters, int step) {
  at::manual_seed(100 + step);
  for (size_t i = 0; i + 1 < parameters.size(); ++i) {
    const auto gradient = drawn(parameters[i].sizes(), parameters[i].scalar_type());
    parameters[i].mutable_grad() = i == 2 && step % 3 == 2 ? at::Tensor() : gradient;
  }
}

struct Recorder {
  cohort::checkpoint::StateDict results;

  void state(const std::string& name, const torch::optim::SGDParamState& state) {
    if (state.momentum_buffer().defined()) results.insert(name + ".momentum", state.momentum_buffer().clone());
  }
  template <class State>
  requires requires(const State& state) { state.exp_avg(); }
  void state(const std::string& name, const State& state) {
    results.insert(name + ".step", at::scalar_tensor(state.step(), at::kLong));
    results.insert(name + ".exp_avg", state.exp_avg().clone());
    results.insert(name + ".exp_avg_sq", state.exp_avg_sq().clone());
    if (state.max_exp_avg_sq().defined()) results.insert(name + ".max", state.max_exp_avg_sq().clone());
  }
};

// The second group has options of its own.
template <class Optimizer, class State, class Options>
void run(Recorder& recorder, const std::string& name, const Options& options, const Options& of_the_second) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble, at::kHalf, at::kComplexFloat}) {
    const auto parameters = parameters_of(dtype);
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(Parameters(parameters.begin(), parameters.begin() + 3), std::make_unique<Options>(options));
    groups.emplace_back(Parameters(parameters.begin() + 3, parameters.end()), std::make_unique<Options>(of_the_second));
    Optimizer optimizer(groups, Options(1e-3));
    for (int step = 0; step < kNumSteps; ++step) {
      set_gradients(parameters, step);
      optimizer.step();
      for (size_t i = 0; i < parameters.size(); ++i) {
        const auto key = name + "." + c10::toString(dtype) + "." + std::to_string(step) + "." + std::to_string(i);
        recorder.results.insert(key, parameters[i].detach().clone());
        const auto found = optimizer.state().find(parameters[i].unsafeGetTensorImpl());
        if (found != optimizer.state().end()) recorder.state(key, static_cast<const State&>(*found->second));
      }
    }
  }
}

}  // namespace

int main(int, char** argv) {
  namespace optim = cohort::optim;
  using torch::optim::AdamParamState;
  using torch::optim::AdamWParamState;
  using torch::optim::SGDParamState;
  try {
    Recorder recorder;
    run<optim::AdamW, AdamWParamState>(recorder, "adamw", AdamWOptions(0.02).betas({0.8, 0.95}),
                                       AdamWOptions(0.01).weight_decay(0.3).eps(1e-6));
    run<optim::AdamW, AdamWParamState>(recorder, "amsgrad", AdamWOptions(0.02).amsgrad(true).weight_decay(0.1),
                                       AdamWOptions(0.01).weight_decay(0));
    run<optim::Adam, AdamParamState>(recorder, "adam", AdamOptions(0.02), AdamOptions(0.01).weight_decay(0.3));
    run<optim::Adam, AdamParamState>(recorder, "adam_amsgrad", AdamOptions(0.02).amsgrad(true),
                                     AdamOptions(0.01).amsgrad(true).weight_decay(0.3));
    run<optim::SGD, SGDParamState>(recorder, "sgd", SGDOptions(0.05), SGDOptions(0.1).weight_decay(0.1));
    run<optim::SGD, SGDParamState>(recorder, "momentum", SGDOptions(0.05).momentum(0.9).nesterov(true),
                                   SGDOptions(0.02).momentum(0.8).dampening(0.4).weight_decay(0.1));
    cohort::checkpoint::save_file(recorder.results, argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
