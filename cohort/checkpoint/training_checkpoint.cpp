#include "cohort/checkpoint/training_checkpoint.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "cohort/base/text.h"
#include "cohort/checkpoint/optimizer_state.h"

namespace cohort::checkpoint {
namespace {

constexpr const char* kModel = "model.";
constexpr const char* kOptimizer = "optimizer.";
constexpr const char* kExtra = "extra.";
constexpr const char* kRng = "rng.cpu";

void insert_all(StateDict& to, const std::string& prefix, const StateDict& from) {
  for (const auto& item : from) to.insert(prefix + item.key(), item.value());
}

StateDict take_prefix(const StateDict& from, const std::string& prefix) {
  StateDict result;
  for (const auto& item : from) {
    if (item.key().starts_with(prefix)) result.insert(item.key().substr(prefix.size()), item.value());
  }
  return result;
}

int64_t take_number(FileMetadata& metadata, const std::string& key, const std::string& path) {
  const auto found = metadata.find(key);
  const auto number = found == metadata.end() ? std::nullopt : base::parse_int(found->second);
  TORCH_CHECK(number.has_value(), "[cohort] load_checkpoint: \"", path,
              "\" is not a training checkpoint: its metadata has no ", "number \"", key,
              "\"\n  hint: weights alone are read by load_model() or load_file()");
  metadata.erase(found);
  return *number;
}

// The tensors that are one and the same: same place, dtype, sizes and strides.
using TensorIdentity = std::tuple<const void*, at::ScalarType, std::vector<int64_t>, std::vector<int64_t>>;

TensorIdentity identity_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr(), tensor.scalar_type(), tensor.sizes().vec(), tensor.strides().vec()};
}

}  // namespace

at::Tensor rng_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_rng_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

void save_checkpoint(const std::string& path, const torch::nn::Module& module, const torch::optim::Optimizer* optimizer,
                     const TrainingProgress& progress) {
  StateDict tensors;
  insert_all(tensors, kModel, state_dict(module));
  if (optimizer) insert_all(tensors, kOptimizer, optimizer_state_dict(*optimizer, module.named_parameters()));
  insert_all(tensors, kExtra, progress.extra);
  tensors.insert(kRng, rng_state());
  FileMetadata metadata = progress.metadata;
  metadata["step"] = std::to_string(progress.step);
  metadata["epoch"] = std::to_string(progress.epoch);
  metadata["batch"] = std::to_string(progress.batch);
  save_file(tensors, path, metadata, {.shared_tensors = SharedTensors::kSaveEach});
}

TrainingProgress load_checkpoint(const std::string& path, torch::nn::Module& module, torch::optim::Optimizer* optimizer,
                                 RestoreRng restore_rng) {
  TrainingProgress progress{.metadata = load_metadata(path)};
  progress.step = take_number(progress.metadata, "step", path);
  progress.epoch = take_number(progress.metadata, "epoch", path);
  progress.batch = take_number(progress.metadata, "batch", path);
  const StateDict tensors = load_file(path);
  progress.extra = take_prefix(tensors, kExtra);
  load_state_dict(module, take_prefix(tensors, kModel));
  if (optimizer) load_optimizer_state_dict(*optimizer, module.named_parameters(), take_prefix(tensors, kOptimizer));
  const at::Tensor* rng = tensors.find(kRng);
  if (rng && restore_rng == RestoreRng::kYes) set_rng_state(*rng);
  return progress;
}

void save_model(const torch::nn::Module& module, const std::string& path, FileMetadata metadata) {
  const StateDict state = state_dict(module);
  std::map<TensorIdentity, std::string> first_name;
  for (const auto& item : state) {
    if (item.value().numel() == 0) continue;
    std::string& name = first_name.try_emplace(identity_of(item.value()), item.key()).first->second;
    name = std::min(name, item.key());
  }
  StateDict kept;
  for (const auto& item : state) {
    const auto found = first_name.find(identity_of(item.value()));
    if (found == first_name.end() || found->second == item.key()) {
      kept.insert(item.key(), item.value());
    } else {
      metadata.try_emplace(item.key(), found->second);
    }
  }
  save_file(kept, path, metadata);
}

IncompatibleKeys load_model(torch::nn::Module& module, const std::string& path, LoadStateDictOptions options) {
  StateDict state = load_file(path);
  const StateDict own = state_dict(module);
  for (const auto& [name, kept_name] : load_metadata(path)) {
    const at::Tensor* kept = state.find(kept_name);
    if (kept && own.contains(name) && !state.contains(name)) state.insert(name, at::Tensor(*kept));
  }
  return load_state_dict(module, state, options);
}

}  // namespace cohort::checkpoint
