#include "cohort/checkpoint/state/persistence.h"

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include "cohort/base/text/text.h"
#include "cohort/comm/notes/tensor_notes.h"

namespace cohort::checkpoint {
namespace {

comm::TensorNotes<bool>& marks() {
  static auto& all = *new comm::TensorNotes<bool>;
  return all;
}

at::Tensor buffer_of(const torch::nn::Module& module, const std::string& name) {
  const auto buffers = module.named_buffers(/*recurse=*/false);
  const auto* const buffer = buffers.find(name);
  TORCH_CHECK_VALUE(buffer && buffer->defined(), "[cohort] ", module.name(), " has no buffer \"", name, "\"",
                    base::did_you_mean(name, buffers.keys()),
                    "\n  hint: pass the module that registers it, and the name without the module's");
  return *buffer;
}

}  // namespace

void mark_non_persistent(const torch::nn::Module& module, const std::string& name) {
  marks().set(buffer_of(module, name), true);
}

void unmark_non_persistent(const torch::nn::Module& module, const std::string& name) {
  marks().erase(buffer_of(module, name));
}

bool is_non_persistent(const at::Tensor& buffer) { return marks().of(buffer); }

}  // namespace cohort::checkpoint
