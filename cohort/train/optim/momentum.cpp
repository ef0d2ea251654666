#include "cohort/train/optim/momentum.h"

#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <tuple>
#include <variant>

#include "cohort/parallel/optim/optimizer_kind.h"
#include "cohort/parallel/zero/zero_redundancy_optimizer.h"

namespace cohort::optim {
namespace {

// Returns the options of the wrapped optimizer if it is a ZeroRedundancyOptimizer.
Fields option_fields(const torch::optim::Optimizer& optimizer, torch::optim::OptimizerOptions& options) {
  const auto* const divided = dynamic_cast<const ZeroRedundancyOptimizer*>(&optimizer);
  const auto* const kind = find_optimizer_kind(divided ? divided->optim() : optimizer);
  return kind ? kind->options(options) : Fields();
}

}  // namespace

bool uses_beta1(const torch::optim::Optimizer& optimizer) {
  TORCH_CHECK_VALUE(!optimizer.param_groups().empty(), "optimizer got an empty parameter list");
  bool has_momentum = false;
  const auto options = optimizer.param_groups().front().options().clone();
  for (const auto& field : option_fields(optimizer, *options)) {
    if (field.key == "betas") return true;
    has_momentum |= field.key == "momentum";
  }
  TORCH_CHECK_VALUE(has_momentum, "optimizer must support momentum or beta1 with `cycle_momentum` option enabled");
  return false;
}

void set_momentum(torch::optim::Optimizer& optimizer, size_t group, bool use_beta1, double value) {
  for (const auto& field : option_fields(optimizer, optimizer.param_groups()[group].options())) {
    auto* const* const betas = std::get_if<std::tuple<double, double>*>(&field.place);
    auto* const* const number = std::get_if<double*>(&field.place);
    if (use_beta1 && field.key == "betas" && betas) {
      std::get<0>(**betas) = value;
      return;
    }
    if (!use_beta1 && field.key == "momentum" && number) {
      **number = value;
      return;
    }
  }
  TORCH_CHECK_VALUE(
      false, "[cohort] the schedule moves ", use_beta1 ? "betas" : "momentum",
      ", which this optimizer does not have\n  hint: construct optimizer and scheduler as in the saved run");
}

}  // namespace cohort::optim
