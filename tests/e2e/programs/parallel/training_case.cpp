#include "training_case.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <unordered_set>

namespace cohort::proof {

TrainingCase::TrainingCase(const std::string& path)
    : path_(path), settings_(checkpoint::load_metadata(path)), tensors_(checkpoint::load_file(path)) {}

const std::string& TrainingCase::setting(const std::string& key) const {
  const auto found = settings_.find(key);
  TORCH_CHECK(found != settings_.end(), path_, " has no setting \"", key, "\"");
  return found->second;
}

at::Tensor TrainingCase::batch(const std::string& key, int64_t step, int64_t micro_batch) const {
  return tensors_[key][step][micro_batch][get_rank()].clone();
}

ddp::Options TrainingCase::ddp_options(ddp::Engine engine) const {
  ddp::Options options;
  if (!setting("bucket_cap_mb").empty()) options.bucket_cap_mb = number("bucket_cap_mb");
  options.find_unused_parameters = flag("find_unused_parameters");
  options.static_graph = flag("static_graph");
  options.gradient_as_bucket_view = flag("gradient_as_bucket_view");
  options.engine = engine;
  return options;
}

std::unique_ptr<torch::optim::Optimizer> TrainingCase::optimizer(std::vector<at::Tensor> parameters) const {
  using namespace torch::optim;
  if (setting("optimizer").starts_with("adamw")) {
    return std::make_unique<AdamW>(std::move(parameters), AdamWOptions(number("lr")).weight_decay(0.1));
  }
  return std::make_unique<SGD>(std::move(parameters), SGDOptions(number("lr")).momentum(number("momentum")));
}

void TrainingCase::initialise(torch::nn::Module& module) const {
  const at::NoGradGuard no_grad;
  for (auto& entry : module.named_parameters()) {
    entry.value().set_requires_grad(setting("frozen") != entry.key());
  }
  auto state = unique_parameters(module);
  for (const auto& entry : module.named_buffers()) state.insert(entry.key(), entry.value());
  for (auto& entry : state) {
    entry.value().copy_(tensors_["initial." + entry.key()]);
    if (get_rank() > 0) entry.value().add_(get_rank());
  }
}

checkpoint::StateDict unique_parameters(const torch::nn::Module& module) {
  checkpoint::StateDict result;
  std::unordered_set<const void*> seen;
  for (const auto& entry : module.named_parameters()) {
    if (seen.insert(entry.value().unsafeGetTensorImpl()).second) result.insert(entry.key(), entry.value());
  }
  return result;
}

void Record::add_state() {
  for (const auto& entry : unique_parameters(module_)) add("parameter." + entry.key(), entry.value());
  for (const auto& entry : module_.named_buffers()) add("buffer." + entry.key(), entry.value());
}

void Record::add_gradients() {
  for (const auto& entry : unique_parameters(module_)) {
    const auto& gradient = entry.value().grad();
    add("has_gradient." + entry.key(), at::scalar_tensor(gradient.defined(), at::kByte));
    add("gradient." + entry.key(), gradient.defined() ? gradient.to_dense() : at::zeros_like(entry.value()));
  }
}

void Record::add_buckets(const std::vector<std::vector<size_t>>& buckets) {
  std::vector<std::string> names;
  for (const auto& entry : unique_parameters(module_)) {
    if (entry.value().requires_grad()) names.push_back(entry.key());
  }
  for (const auto& bucket : buckets) {
    buckets_ += "[";
    for (const size_t index : bucket) buckets_ += " " + names.at(index);
    buckets_ += " ]";
  }
  buckets_ += "\n";
}

void Record::save(const std::string& path) const {
  checkpoint::StateDict stacked;
  for (const auto& [name, values] : values_) stacked.insert(name, at::stack(values));
  checkpoint::save_file(stacked, path, {{"buckets", buckets_}});
}

}  // namespace cohort::proof
