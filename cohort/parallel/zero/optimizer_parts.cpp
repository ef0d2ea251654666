#include "cohort/parallel/zero/optimizer_parts.h"

#include <ATen/ATen.h>
#include <torch/serialize/archive.h>

#include <numeric>
#include <sstream>
#include <utility>

#include "cohort/parallel/ddp/buckets/bucket_memory.h"

namespace cohort::zero {

torch::optim::OptimizerParamGroup with_params(const torch::optim::OptimizerParamGroup& group,
                                              std::vector<at::Tensor> params) {
  if (!group.has_options()) return {std::move(params)};
  return {std::move(params), group.options().clone()};
}

void SwappedOptions::exchange() {
  for (size_t i = 0; i < shown_.size(); ++i) {
    std::swap(shown_[i], local_[i]);
    std::swap(shown_[i].params(), local_[i].params());
  }
}

std::string bytes_of(const torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return std::move(stream).str();
}

void load_bytes(torch::optim::Optimizer& optimizer, const std::string& bytes, c10::Device device) {
  torch::serialize::InputArchive archive;
  archive.load_from(bytes.data(), bytes.size(), device);
  optimizer.load(archive);
}

void move_state(torch::optim::Optimizer& from, torch::optim::Optimizer& to) {
  for (auto& [parameter, state] : from.state()) to.state()[parameter] = std::move(state);
  from.state().clear();
}

at::Tensor flatten_params(const std::vector<at::Tensor>& params, const Group& group) {
  const at::NoGradGuard no_grad;
  std::vector<size_t> all(params.size());
  std::iota(all.begin(), all.end(), 0);
  auto flat = ddp::make_bucket_memory(params, all, group, std::nullopt);
  int64_t offset = 0;
  for (const auto& param : params) {
    auto view = ddp::alias_of(flat, offset, param);
    view.copy_(param);
    param.set_data(view);
    offset += param.numel();
  }
  return flat;
}

std::string typename_of(const at::Tensor& tensor) {
  std::string name = "torch.";
  if (!tensor.is_cpu()) name += c10::DeviceTypeName(tensor.device().type(), /*lower_case=*/true) + ".";
  if (tensor.is_sparse()) name += "sparse.";
  return name + c10::toString(tensor.scalar_type()) + "Tensor";
}

}  // namespace cohort::zero
