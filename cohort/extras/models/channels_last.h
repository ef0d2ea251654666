/// Converts images and convolutions to the memory format channels last. On the CPU, convolutions in bfloat16 are fastest with it.
#pragma once

#include <torch/nn/module.h>

#include "cohort/export.h"

namespace cohort::models {

/// As module.to(memory_format=torch.channels_last) in Python: changes the layout of every four-dimensional parameter and buffer.
/// Give the model images.contiguous(at::MemoryFormat::ChannelsLast). Call it before optimizers and wrappers are made.
COHORT_API void to_channels_last(torch::nn::Module& module);

}  // namespace cohort::models
