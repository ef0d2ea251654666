// grad_scaler RESULT: scales, parameters and gradients of a training with GradScaler.
// tests/e2e/parallel/grad_scaler_test.py makes the same calls.
#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include <iostream>
#include <limits>
#include <string>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/parallel/optim/fused_optimizers.h"
#include "cohort/parallel/optim/grad_scaler.h"

namespace {

using Parameters = std::vector<at::Tensor>;

constexpr int kNumSteps = 30;

Parameters draw_parameters() {
  at::manual_seed(3);
  Parameters parameters;
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    parameters.push_back(at::randn({33}, at::kFloat).to(dtype).set_requires_grad(true));
  }
  return parameters;
}

// Every fifth step has an infinity and every seventh a NaN; the last parameter's gradient may be missing.
void set_scaled_gradients(cohort::amp::GradScaler& scaler, const Parameters& parameters, int step) {
  at::manual_seed(50 + step);
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto gradient = at::randn({33}, at::kFloat).to(parameters[i].dtype());
    if (step % 5 == 4 && i == 1) gradient[7] = -std::numeric_limits<double>::infinity();
    if (step % 7 == 6 && i == 0) gradient[32] = std::numeric_limits<double>::quiet_NaN();
    parameters[i].mutable_grad() = i == 2 && step % 2 == 1 ? at::Tensor() : scaler.scale(gradient);
  }
}

}  // namespace

int main(int, char** argv) {
  using cohort::amp::GradScaler;
  try {
    cohort::checkpoint::StateDict results;
    const auto parameters = draw_parameters();
    torch::optim::SGD sgd(Parameters{parameters[0]}, torch::optim::SGDOptions(0.1));
    cohort::optim::AdamW adamw(Parameters{parameters[1], parameters[2]}, torch::optim::AdamWOptions(0.05));
    GradScaler first(
        {.device = at::kCPU, .init_scale = 1000.3, .growth_factor = 1.7, .backoff_factor = 0.3, .growth_interval = 3});
    GradScaler second({.device = at::kCPU});
    for (int step = 0; step < kNumSteps; ++step) {
      auto& scaler = step < 16 ? first : second;
      if (step == 16) second.load_state_dict(first.state_dict());
      set_scaled_gradients(scaler, parameters, step);
      if (step % 3 == 0) scaler.unscale_(sgd);
      scaler.step(sgd);
      scaler.step(adamw);
      if (step == 10) {
        scaler.update(123.5);
      } else {
        scaler.update();
      }
      const auto key = std::to_string(step) + ".";
      results.insert(key + "scale", at::scalar_tensor(scaler.get_scale(), at::kDouble));
      results.insert(key + "tracker", at::scalar_tensor(scaler.state_dict().at("_growth_tracker").toInt(), at::kLong));
      for (size_t i = 0; i < parameters.size(); ++i) {
        results.insert(key + "parameter." + std::to_string(i), parameters[i].detach().clone());
        const auto& gradient = parameters[i].grad();
        if (gradient.defined()) results.insert(key + "gradient." + std::to_string(i), gradient.clone());
      }
    }
    cohort::checkpoint::save_file(results, argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
