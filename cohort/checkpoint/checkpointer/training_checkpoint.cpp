#include "cohort/checkpoint/checkpointer/training_checkpoint.h"

#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "cohort/base/text/text.h"
#include "cohort/checkpoint/file/tensor_file.h"
#include "cohort/checkpoint/optimizer/optimizer_state.h"
#include "cohort/comm/error/exception_text.h"

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

bool has_prefix(const files::SafetensorsHeader& header, const char* prefix) {
  return std::any_of(header.entries.begin(), header.entries.end(),
                     [&](const files::SafetensorsEntry& entry) { return entry.name.starts_with(prefix); });
}

int64_t take_number(FileMetadata& metadata, const std::string& key, const std::string& path, bool has_optimizer) {
  const auto found = metadata.find(key);
  const auto number = found == metadata.end() ? std::nullopt : base::parse_int(found->second);
  TORCH_CHECK(number.has_value(), "[cohort] load_checkpoint: \"", path,
              "\" is not a training checkpoint: its metadata has no number \"", key, "\"",
              has_optimizer ? "" : ", and it holds no optimizer state",
              "\n  hint: read weights alone with load_model() or load_file()");
  metadata.erase(found);
  return *number;
}

// Calls `load`. Adds function, file and hint to an exception, and keeps its type. `what`: the thing that does not fit.
template <class Load>
auto with_file(const char* function, const std::string& path, const char* what, const std::string& hint, Load load) {
  const auto text = [&](const c10::Error& error) {
    const std::string cause = comm::text_of(error);
    const auto way_out = cause.find("\n  hint: ") == std::string::npos ? "\n  hint: " + hint : "";
    return c10::str("[cohort] ", function, ": \"", path, "\" does not fit ", what, "\n  caused by: ", cause, way_out);
  };
  try {
    return load();
  } catch (const c10::NotImplementedError& error) {
    C10_THROW_ERROR(NotImplementedError, text(error));
  } catch (const c10::ValueError& error) {
    C10_THROW_ERROR(ValueError, text(error));
  } catch (const c10::Error& error) {
    TORCH_CHECK(false, text(error));
  }
}

// Identifies a tensor: tensors with the same address, signs, dtype, sizes and strides are one.
using TensorIdentity = std::tuple<const void*, bool, bool, at::ScalarType, std::vector<int64_t>, std::vector<int64_t>>;

TensorIdentity identity_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr(), tensor.is_conj(),     tensor.is_neg(),
          tensor.scalar_type(),    tensor.sizes().vec(), tensor.strides().vec()};
}

}  // namespace

void save_checkpoint(const torch::nn::Module& module, const torch::optim::Optimizer* optimizer, const std::string& path,
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
  detail::write_file("save_checkpoint", tensors, path, metadata, {.shared_tensors = SharedTensors::kSaveEach});
}

TrainingProgress load_checkpoint(torch::nn::Module& module, torch::optim::Optimizer* optimizer, const std::string& path,
                                 const LoadCheckpointOptions& options) {
  constexpr const char* kFunction = "load_checkpoint";
  const files::SafetensorsHeader header = detail::read_header(kFunction, path);
  const bool has_optimizer = has_prefix(header, kOptimizer);
  TrainingProgress progress{.metadata = header.metadata};
  progress.step = take_number(progress.metadata, "step", path, has_optimizer);
  progress.epoch = take_number(progress.metadata, "epoch", path, has_optimizer);
  progress.batch = take_number(progress.metadata, "batch", path, has_optimizer);
  TORCH_CHECK(!optimizer || has_optimizer, "[cohort] load_checkpoint: \"", path,
              "\" holds no optimizer state\n  hint: it was saved without an optimizer; to go on with a fresh one, give "
              "load_checkpoint() nullptr in its place");
  const StateDict tensors = detail::read_tensors(kFunction, path);
  progress.extra = take_prefix(tensors, kExtra);
  with_file(kFunction, path, "the model",
            "construct the model as in the run that was saved; load_file() gives whatever the file holds, by name",
            [&] { load_state_dict(module, take_prefix(tensors, kModel)); });
  if (optimizer) {
    with_file(
        kFunction, path, "the optimizer",
        "construct the same kind of optimizer over the same parameters as in the run that was saved; to go on with a "
        "fresh one, give load_checkpoint() nullptr in its place",
        [&] { load_optimizer_state_dict(*optimizer, module.named_parameters(), take_prefix(tensors, kOptimizer)); });
  }
  const at::Tensor* rng = tensors.find(kRng);
  if (rng && options.restore_rng) {
    with_file(kFunction, path, "LibTorch's CPU generator",
              "{.restore_rng = false} leaves the random numbers of this process as they are",
              [&] { set_rng_state(*rng); });
  }
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
  detail::write_file("save_model", kept, path, metadata, {});
}

IncompatibleKeys load_model(torch::nn::Module& module, const std::string& path, LoadStateDictOptions options) {
  constexpr const char* kFunction = "load_model";
  const files::SafetensorsHeader header = detail::read_header(kFunction, path);
  StateDict state = detail::read_tensors(kFunction, path);
  const StateDict own = state_dict(module);
  for (const auto& [name, kept_name] : header.metadata) {
    const at::Tensor* kept = state.find(kept_name);
    if (kept && own.contains(name) && !state.contains(name)) state.insert(name, at::Tensor(*kept));
  }
  const bool is_checkpoint = has_prefix(header, kRng) && header.metadata.contains("step");
  return with_file(kFunction, path, "the model",
                   is_checkpoint ? "this is a training checkpoint, which load_checkpoint() reads"
                                 : "construct the model as it was when the file was written, or take what fits by name "
                                   "with {.strict = false}",
                   [&] { return load_state_dict(module, state, options); });
}

}  // namespace cohort::checkpoint
