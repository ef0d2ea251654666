/// Momentum or beta1 of a parameter group of any optimizer, by the option names of its kind (parallel/optim/optimizer_kind.h).
#pragma once

#include <cstddef>

namespace torch::optim {
class Optimizer;
}

namespace cohort::optim {

/// Returns true if the optimizer has "betas", false if it has "momentum". Throws c10::ValueError (PyTorch's text) if it has
/// neither.
bool uses_beta1(const torch::optim::Optimizer& optimizer);
/// Sets beta1 or momentum of this group. Throws c10::ValueError if the optimizer has no such option.
void set_momentum(torch::optim::Optimizer& optimizer, size_t group, bool use_beta1, double value);

}  // namespace cohort::optim
