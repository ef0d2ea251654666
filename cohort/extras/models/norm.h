/// The batch norm of these models.
#pragma once

#include <torch/nn/modules/batchnorm.h>

namespace cohort::models {

using BatchNorm2d = torch::nn::BatchNorm2d;

}  // namespace cohort::models
