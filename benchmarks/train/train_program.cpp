#include "benchmarks/train/train_program.h"

#include <ATen/ATen.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

namespace cohort::bench {

std::string train_answer(const std::vector<TrainParts>& steps) {
  std::vector<double> numbers;
  for (const auto& step : steps) numbers.insert(numbers.end(), {step.data, step.forward, step.backward, step.step});
  return fmt::format("{:.6f}", fmt::join(numbers, " "));
}

std::string train_sums(const std::vector<double>& losses, const std::vector<at::Tensor>& parameters) {
  double sum = 0, squares = 0;
  for (const auto& parameter : parameters) {
    sum += parameter.detach().sum(at::kDouble).item<double>();
    squares += parameter.detach().square().sum(at::kDouble).item<double>();
  }
  return fmt::format("{:.10g} {:.10g} {:.10g}", fmt::join(losses, " "), sum, squares);
}

}  // namespace cohort::bench
