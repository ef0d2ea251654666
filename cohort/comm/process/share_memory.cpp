#include "cohort/comm/process/share_memory.h"

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "cohort/comm/process/shared_storage.h"

namespace cohort {
namespace {

class Collection {
 public:
  void add(const std::string& who, const at::Tensor& tensor) {
    comm::check_shareable("share_memory: " + who, tensor);
    storages_.push_back(tensor.storage());
  }
  void move() const { comm::move_to_shared_memory(storages_); }

 private:
  std::vector<c10::Storage> storages_;
};

}  // namespace

void share_memory(at::TensorList tensors) {
  Collection collection;
  for (size_t i = 0; i < tensors.size(); ++i) {
    collection.add(tensors.size() == 1 ? "the tensor" : "tensor " + std::to_string(i), tensors[i]);
  }
  collection.move();
}

void share_memory(const torch::nn::Module& module) {
  Collection collection;
  for (const auto& item : module.named_parameters()) {
    collection.add("parameter \"" + item.key() + "\"", item.value());
    if (const auto& gradient = item.value().grad(); gradient.defined()) {
      collection.add("the gradient of parameter \"" + item.key() + "\"", gradient);
    }
  }
  for (const auto& item : module.named_buffers()) collection.add("buffer \"" + item.key() + "\"", item.value());
  collection.move();
}

bool is_shared(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return false;
  return comm::find_shared(tensor.storage()).block || comm::is_libtorch_shared(tensor.storage());
}

}  // namespace cohort
