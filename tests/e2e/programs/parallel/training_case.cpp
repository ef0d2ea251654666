#include "training_case.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <unordered_set>

namespace cohort::proof {

TrainingCase::TrainingCase(const std::string& path)
    : path_(path), settings_(checkpoint::load_metadata(path)), tensors_(checkpoint::load_file(path)) {}

const std::string& TrainingCase::setting(const std::string& key) const {
  const auto found = settings_.find(key);
  TORCH_CHECK(found != settings_.end(), path_, " has no setting \"", key, "\"");
  return found->second;
}

std::vector<std::string> TrainingCase::words(const std::string& key) const {
  std::istringstream text(setting(key));
  return {std::istream_iterator<std::string>(text), {}};
}

// num_steps() of ddp_reference.py.
int64_t TrainingCase::num_steps() const {
  const auto most = tensors_["x"].size(0);
  const int rank = get_rank();
  if (setting("join").empty() || rank == 0) return most;
  return rank == 1 ? 0 : 4 * rank;
}

at::Tensor TrainingCase::batch(const std::string& key, int64_t step, int64_t micro_batch) const {
  return tensors_[key][step][micro_batch][get_rank()].clone();
}

std::optional<at::ScalarType> TrainingCase::dtype(const std::string& key) const {
  const auto& name = setting(key);
  if (name.empty()) return std::nullopt;
  if (name == "bfloat16") return at::kBFloat16;
  if (name == "float16") return at::kHalf;
  if (name == "float32") return at::kFloat;
  TORCH_CHECK(name == "float64", path_, " has an unknown dtype \"", name, "\"");
  return at::kDouble;
}

ddp::Options TrainingCase::ddp_options(ddp::Engine engine, torch::nn::Module& module) const {
  ddp::Options options;
  if (!setting("bucket_cap_mb").empty()) options.bucket_cap_mb = number("bucket_cap_mb");
  options.find_unused_parameters = flag("find_unused_parameters");
  options.static_graph = flag("static_graph");
  options.gradient_as_bucket_view = flag("gradient_as_bucket_view");
  for (const auto& mb : words("bucket_cap_mb_list")) options.bucket_cap_mb_list.push_back(std::stod(mb));
  options.skip_all_reduce_unused_params = flag("skip_all_reduce_unused_params");
  options.batched_grad_copy = flag("batched_grad_copy");
  if (!setting("param_dtype").empty()) {
    options.mixed_precision = ddp::MixedPrecision{dtype("param_dtype"), dtype("reduce_dtype"), dtype("buffer_dtype")};
  }
  const auto ignored = words("ignored");
  options.parameters_and_buffers_to_ignore = {ignored.begin(), ignored.end()};
  for (const auto& name : words("delayed")) {
    options.delay_all_reduce_named_params.emplace_back(name, module.named_parameters()[name]);
    options.param_to_hook_all_reduce = module.named_parameters()["first.weight"];
  }
  options.engine = engine;
  return options;
}

std::unique_ptr<torch::optim::Optimizer> TrainingCase::optimizer(std::vector<at::Tensor> parameters) const {
  using namespace torch::optim;
  if (setting("optimizer") == "adam_fused") {
    return std::make_unique<Adam>(std::move(parameters), AdamOptions(number("lr")).weight_decay(0.1));
  }
  if (setting("optimizer").starts_with("adamw")) {
    return std::make_unique<AdamW>(std::move(parameters), AdamWOptions(number("lr")).weight_decay(0.1));
  }
  return std::make_unique<SGD>(std::move(parameters), SGDOptions(number("lr")).momentum(number("momentum")));
}

void TrainingCase::initialize(torch::nn::Module& module) const {
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

void Record::add_buckets(const std::vector<std::vector<size_t>>& buckets, const std::vector<std::string>& ignored) {
  std::vector<std::string> names;
  for (const auto& entry : unique_parameters(module_)) {
    const bool is_ignored = std::find(ignored.begin(), ignored.end(), entry.key()) != ignored.end();
    if (entry.value().requires_grad() && !is_ignored) names.push_back(entry.key());
  }
  for (const auto& bucket : buckets) {
    buckets_ += "[";
    for (const size_t index : bucket) buckets_ += " " + names.at(index);
    buckets_ += " ]";
  }
  buckets_ += "\n";
}

void Record::set_logging_data(const c10::DDPLoggingData& data) {
  for (const auto& [name, value] : data.strs_map) logging_ += name + "=" + value + "\n";
  for (const auto& [name, value] : data.ints_map) logging_ += name + "=" + std::to_string(value) + "\n";
}

void Record::save(const std::string& path) const {
  checkpoint::StateDict stacked;
  for (const auto& [name, values] : values_) stacked.insert(name, at::stack(values));
  checkpoint::save_file(stacked, path, {{"buckets", buckets_}, {"logging", logging_}});
}

}  // namespace cohort::proof
