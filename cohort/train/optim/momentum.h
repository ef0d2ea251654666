/// Momentum or beta1 of a parameter group, in whichever optimizer: by the names of its kind (parallel/optim/optimizer_kind.h).
#pragma once

#include <cstddef>

namespace torch::optim {
class Optimizer;
}

namespace cohort::optim {

/// True: it has "betas"; false: "momentum". Throws c10::ValueError (PyTorch's text) for one that has neither.
bool uses_beta1(const torch::optim::Optimizer& optimizer);
/// Sets beta1 or momentum of this group. Throws c10::ValueError where the optimizer has no such option.
void set_momentum(torch::optim::Optimizer& optimizer, size_t group, bool use_beta1, double value);

}  // namespace cohort::optim
