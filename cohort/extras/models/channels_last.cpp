#include "cohort/extras/models/channels_last.h"

#include <c10/core/MemoryFormat.h>

#include <vector>

namespace cohort::models {
namespace {

void lay_out_channels_last(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.dim() == 4) tensor.set_data(tensor.detach().contiguous(at::MemoryFormat::ChannelsLast));
  }
}

}  // namespace

void to_channels_last(torch::nn::Module& module) {
  lay_out_channels_last(module.parameters());
  lay_out_channels_last(module.buffers());
}

}  // namespace cohort::models
