/// Images and convolutions whose channels are innermost in memory. On the CPU that is how convolutions in bfloat16 are fastest.
#pragma once

#include <torch/nn/module.h>

#include "cohort/export.h"

namespace cohort::models {

/// As module.to(memory_format=torch.channels_last) in Python: every parameter and buffer of four dimensions keeps its values and
/// is laid out anew. Give the model images.contiguous(at::MemoryFormat::ChannelsLast). Before optimizers and wrappers are made.
COHORT_API void to_channels_last(torch::nn::Module& module);

}  // namespace cohort::models
