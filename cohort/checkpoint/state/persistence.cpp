#include "cohort/checkpoint/state/persistence.h"

#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/nn/module.h>

#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cohort/base/text.h"

namespace cohort::checkpoint {
namespace {

using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;

// As long as one is listed nothing else can have its address.
struct Marks {
  std::mutex mutex;
  std::unordered_map<const at::TensorImpl*, WeakTensor> tensors;
};

Marks& marks() {
  static auto& all = *new Marks;
  return all;
}

at::Tensor buffer_of(const torch::nn::Module& module, const std::string& name) {
  const auto buffers = module.named_buffers(/*recurse=*/false);
  const auto* const buffer = buffers.find(name);
  TORCH_CHECK_VALUE(buffer && buffer->defined(), "[cohort] ", module.name(), " has no buffer \"", name, "\"",
                    base::did_you_mean(name, buffers.keys()),
                    "\n  hint: give the module that registers it, and the name without that of the module");
  return *buffer;
}

}  // namespace

void mark_non_persistent(const torch::nn::Module& module, const std::string& name) {
  const auto buffer = buffer_of(module, name);
  std::vector<WeakTensor> expired;  // goes after the lock
  const std::lock_guard lock(marks().mutex);
  auto& tensors = marks().tensors;
  for (auto entry = tensors.begin(); entry != tensors.end();) {
    if (entry->second.expired()) {
      expired.push_back(std::move(entry->second));
      entry = tensors.erase(entry);
    } else {
      ++entry;
    }
  }
  tensors.emplace(buffer.unsafeGetTensorImpl(), WeakTensor(buffer.getIntrusivePtr()));
}

void unmark_non_persistent(const torch::nn::Module& module, const std::string& name) {
  const auto buffer = buffer_of(module, name);
  const std::lock_guard lock(marks().mutex);
  marks().tensors.erase(buffer.unsafeGetTensorImpl());
}

bool is_non_persistent(const at::Tensor& buffer) {
  const std::lock_guard lock(marks().mutex);
  return marks().tensors.contains(buffer.unsafeGetTensorImpl());
}

}  // namespace cohort::checkpoint
