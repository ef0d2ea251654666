/// Models by name, for the workers of tests/e2e/models.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

namespace cohort::test {

struct MadeModel {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor&)> forward;
};

using ModelSettings = std::map<std::string, int64_t>;
/// {"num_classes=10", "width=16"}
ModelSettings settings_of(std::span<const std::string> arguments);

/// "resnet18", "vit_small", "ToyModel" and so on, with these options.
MadeModel make_model(const std::string& name, const ModelSettings& settings);

}  // namespace cohort::test
