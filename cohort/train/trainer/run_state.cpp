#include "cohort/train/trainer/run_state.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "cohort/base/log/log.h"
#include "cohort/base/numbers/count.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "cohort/checkpoint/optimizer/scheduler_notes.h"
#include "cohort/checkpoint/state/distributed_state.h"
#include "cohort/checkpoint/state/module_names.h"
#include "cohort/checkpoint/state/rng_state.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/train/run/seed_everything.h"
#include "cohort/train/trainer/callback.h"

namespace cohort::train::detail {
namespace {

using checkpoint::ShardedStateDict;
using checkpoint::StateValue;
using Value = c10::IValue;
using Dict = c10::impl::GenericDict;

Dict new_dict() { return Dict(c10::StringType::get(), c10::AnyType::get()); }
Value new_list() { return Value(c10::impl::GenericList(c10::AnyType::get())); }

// Tensors have keys of their own in checkpoints, but which tensors a loader keeps depends on its position. They hold numbers and
// generator states.
Value value_of(const at::Tensor& tensor) {
  const auto numbers = tensor.to(at::kLong).contiguous();
  c10::impl::GenericList data(c10::AnyType::get());
  for (int64_t i = 0; i < numbers.numel(); ++i) data.push_back(Value(numbers.const_data_ptr<int64_t>()[i]));
  c10::impl::GenericList sizes(c10::AnyType::get());
  for (const int64_t size : tensor.sizes()) sizes.push_back(Value(size));
  Dict dict = new_dict();
  dict.insert("dtype", static_cast<int64_t>(tensor.scalar_type()));
  dict.insert("sizes", sizes);
  dict.insert("data", data);
  return dict;
}

std::vector<int64_t> numbers_in(const Value& list) {
  std::vector<int64_t> numbers;
  for (const Value& each : list.toListRef()) numbers.push_back(each.toInt());
  return numbers;
}

at::Tensor tensor_of(const Value& value) {
  const auto dict = value.toGenericDict();
  return at::tensor(numbers_in(dict.at("data")), at::kLong)
      .view(numbers_in(dict.at("sizes")))
      .to(static_cast<at::ScalarType>(dict.at("dtype").toInt()));
}

Value loader_value(const data::StateDict& state) {
  Dict dict = new_dict();
  for (const auto& [name, tensor] : state) dict.insert(name, value_of(tensor));
  return dict;
}

// "cpu", "cpu cuda cuda"
std::string kinds_of(const std::vector<c10::Device>& devices) {
  std::string text;
  for (const auto& device : devices) {
    text += (text.empty() ? "" : " ") + c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  }
  return text;
}

int64_t number_in(const std::map<std::string, std::string>& metadata, const char* name) {
  const auto found = metadata.find(name);
  const auto number = found == metadata.end() ? std::nullopt : base::parse_int(found->second);
  TORCH_CHECK_VALUE(number && *number > 0,
                    "[cohort] Trainer: the checkpoint is not one of a Trainer: its manifest has no ", name,
                    "\n  hint: name another folder, or set checkpoint.resume = Resume::kNever");
  return *number;
}

std::string text_of(const Hyperparameter& value) {
  return std::visit([](const auto& each) { return fmt::format("{}", each); }, value);
}

// The key prefix of what belongs to one rank among those that read different data.
std::string prefix_of(int rank) { return fmt::format("rank.{}.", rank); }
constexpr const char* kPrefixInMemory = "own.";
constexpr const char* kMetadataInMemory = "metadata";
/// The launcher's name for a job, the same across its restarts and different from other jobs' names.
constexpr const char* kJobVariable = "COHORT_JOB";

// `rates`: a number or a list of numbers.
Value scaled(const Value& rates, double factor) {
  if (rates.isDouble() || rates.isInt()) return rates.toScalar().toDouble() * factor;
  if (!rates.isList()) return rates;
  c10::impl::GenericList result(c10::AnyType::get());
  for (const Value& rate : rates.toListRef()) result.push_back(scaled(rate, factor));
  return result;
}

// Scales the rates in a scheduler's state wherever they occur: those that it begins from, moves between, and ends at.
Value with_scaled_rates(const Value& value, double factor) {
  static const std::set<std::string_view> names{"base_lrs", "max_lrs", "min_lrs", "eta_min", "_last_lr"};
  if (value.isGenericDict()) {
    Dict result = new_dict();
    for (const auto& entry : value.toGenericDict()) {
      const bool is_rates = entry.key().isString() && names.contains(entry.key().toStringRef());
      result.insert(entry.key(), is_rates ? scaled(entry.value(), factor) : with_scaled_rates(entry.value(), factor));
    }
    return result;
  }
  if (!value.isList() || value.isIntList() || value.isDoubleList()) return value;
  c10::impl::GenericList result(c10::AnyType::get());
  for (const Value& each : value.toListRef()) result.push_back(with_scaled_rates(each, factor));
  return result;
}

}  // namespace

int64_t batch_size_of(const BatchFeed& feed, int world_size) {
  const auto& options = feed.options();
  return options.global_batch_size ? *options.global_batch_size / world_size : options.batch_size;
}

// "rank.0.rng", "rank.0.rng.1", "rank.0.stage.1.rng", ...: the stages of one pipeline read the same data, but draw their own
// random numbers.
std::string RunState::key_of_generator(const std::string& prefix, size_t number) const {
  const int stage = core_.place().stage;
  return prefix + (stage == 0 ? "" : fmt::format("stage.{}.", stage)) +
         (number == 0 ? "rng" : fmt::format("rng.{}", number));
}

// "rank.0.", "rank.0.part.1.": ranks that shard sequences read the same data, but have their own buffers and random numbers.
RunState::Prefixes RunState::own_prefixes() const {
  const std::string line = prefix_of(core_.place().data_rank);
  const int part = core_.place().sequence_shard;
  return {.line = line, .part = part == 0 ? line : line + fmt::format("part.{}.", part)};
}

void RunState::add_random_numbers(ShardedStateDict& state, const std::string& prefix, size_t count) const {
  for (size_t i = 0; i < count; ++i) {
    state.insert(key_of_generator(prefix, i), StateValue(checkpoint::rng_state(core_.place().generators()[i])));
  }
}

void RunState::keep_random_numbers(const ShardedStateDict& state, const std::string& prefix) {
  random_numbers_.clear();
  for (size_t i = 0; i < num_saved_generators_; ++i) {
    random_numbers_.push_back(state[key_of_generator(prefix, i)].tensor.clone());
  }
}

void RunState::add_model(ShardedStateDict& state) {
  const auto [weights, moments] = checkpoint::get_state_dict(core_.strategy().module(), core_.optimizer());
  for (const auto& item : weights) state.insert("model." + item.key(), item.value());
  for (const auto& item : moments) state.insert("optimizer." + item.key(), item.value());
}

// The model's part of a state has each buffer once. The names are those in the model; they do not tell which stage has a buffer.
void RunState::add_own_buffers(ShardedStateDict& state, const std::string& prefix) {
  for (const auto& [name, tensor, is_parameter] : checkpoint::detail::tensors_of(core_.strategy().net())) {
    if (!is_parameter) state.insert(prefix + "buffer." + name, StateValue(tensor));
  }
}

void RunState::restore_own_buffers(const ShardedStateDict& state, const std::string& prefix) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor, is_parameter] : checkpoint::detail::tensors_of(core_.strategy().net())) {
    const auto* const value = is_parameter ? nullptr : state.find(prefix + "buffer." + name);
    if (value) tensor.copy_(value->tensor);
  }
}

ShardedStateDict RunState::collect() {
  core_.strategy().synchronize_buffers();  // as the next forward pass would; a resumed run then has the same
  ShardedStateDict state;
  add_model(state);
  add_run(state, own_prefixes(), mean_loss_of_line());
  return state;
}

// Ranks that shard sequences save one loss together. Their losses are means over equally many positions. Collective.
at::Tensor RunState::mean_loss_of_line() const {
  const auto parts = core_.mesh() ? parallel::axis_of(*core_.mesh(), "cp") : std::nullopt;
  if (!parts) return loss_;
  const at::Tensor mean = loss_.clone();
  all_reduce(mean, {.group = parts->group()});
  return mean.div_(static_cast<double>(parts->size()));
}

void RunState::add_run(ShardedStateDict& state, const Prefixes& prefixes, const at::Tensor& loss) {
  Dict counters = new_dict();
  counters.insert("epoch", core_.position().epoch());
  counters.insert("step", core_.position().step());
  counters.insert("batch", core_.position().batch());
  counters.insert("samples", core_.position().samples());
  state.insert("trainer", StateValue(Value(counters)));
  Value schedulers = new_list();
  for (const auto& schedule : task_.schedulers) {
    schedulers.toList().push_back(schedule.state_dict ? schedule.state_dict(core_.optimizer()) : Value());
  }
  state.insert("schedulers", StateValue(schedulers));
  auto* const scaler = core_.precision().scaler();
  state.insert("scaler", StateValue(scaler ? Value(scaler->state_dict()) : Value()));
  Dict callbacks = new_dict();
  core_.each_callback([&](Callback& callback) {
    if (callback.name().empty()) return;
    Dict kept = new_dict();
    for (const auto& [key, value] : callback.state_dict()) kept.insert(key, value);
    callbacks.insert(callback.name(), kept);
  });
  state.insert("callbacks", StateValue(Value(callbacks)));
  add_random_numbers(state, prefixes.part, core_.place().generators().size());
  state.insert(prefixes.line + "loss", StateValue(loss));
  if (core_.strategy().has_own_buffers()) add_own_buffers(state, prefixes.part);
  const bool is_within_epoch = core_.position().batch() > 0;
  const Value loader =
      is_within_epoch || !shards_remaining_samples(train_) ? loader_value(train_.state_dict()) : Value();
  state.insert(prefixes.line + "loader", StateValue(loader));
}

checkpoint::SnapshotState RunState::in_memory() {
  const auto of_model = checkpoint::snapshot_state(core_.strategy().module(), core_.optimizer());
  checkpoint::SnapshotState result;
  result.get = [this, of_model] {
    ShardedStateDict state = of_model.get();
    add_run(state, {kPrefixInMemory, kPrefixInMemory}, loss_);
    Dict texts = new_dict();
    for (const auto& [name, text] : metadata()) texts.insert(name, text);
    state.insert(kMetadataInMemory, StateValue(Value(texts)));
    return state;
  };
  result.set = [this, of_model](const ShardedStateDict& kept) {
    std::map<std::string, std::string> texts;
    for (const auto& entry : kept[kMetadataInMemory].value.toGenericDict()) {
      texts.emplace(entry.key().toStringRef(), entry.value().toStringRef());
    }
    fit_to(texts);
    of_model.set(kept);
    restore_run(kept, {kPrefixInMemory, kPrefixInMemory}, kPrefixInMemory);
  };
  result.is_own = [of_model](const std::string& name) {
    return name.starts_with(std::string(kPrefixInMemory) + "buffer.") || (of_model.is_own && of_model.is_own(name));
  };
  return result;
}

std::map<std::string, std::string> RunState::metadata() const {
  std::map<std::string, std::string> texts{
      {"world_size", std::to_string(core_.place().num_data_ranks)},
      {"stages", std::to_string(core_.place().num_stages)},
      {"sequence_parts", std::to_string(core_.place().num_sequence_shards)},
      {"batch_size", std::to_string(batch_size_of(train_, core_.place().num_data_ranks))},
      {"accumulation", std::to_string(core_.position().accumulation())},
      {"strategy", name_of(core_.place().strategy)},
      {"own_buffers", core_.strategy().has_own_buffers() ? "yes" : "no"},
      {"generators", kinds_of(core_.place().generators())},
      {"precision", core_.options().precision}};
  if (auto job = base::get_env(kJobVariable)) texts.emplace("job", std::move(*job));
  for (const auto& [name, value] : core_.options().checkpoint.settings)
    texts.emplace("setting." + name, text_of(value));
  return texts;
}

bool RunState::is_of_this_job(const std::map<std::string, std::string>& metadata) {
  const auto job = base::get_env(kJobVariable);
  const auto found = metadata.find("job");
  return job && !job->empty() && found != metadata.end() && found->second == *job;
}

void RunState::check_settings(const std::map<std::string, std::string>& metadata) const {
  for (const auto& [name, value] : core_.options().checkpoint.settings) {
    const auto found = metadata.find("setting." + name);
    TORCH_CHECK_VALUE(
        found == metadata.end() || found->second == text_of(value), "[cohort] Trainer: the checkpoint in \"",
        core_.options().checkpoint.folder, "\" was made with ", name, " = ",
        found == metadata.end() ? "" : found->second, ", but this run has ", text_of(value),
        "\n  hint: resume with the settings that the run began with, or begin a new run in another folder");
  }
}

void RunState::keep_global_batch(int64_t batch_size, int64_t accumulation) {
  const int world_size = core_.place().num_data_ranks;
  const int64_t global = base::multiply_capped(base::multiply_capped(batch_size, accumulation), saved_world_size_);
  const auto& loader = train_.options();
  const int64_t own = batch_size_of(train_, world_size);
  const bool is_fixed = loader.batch_sampler != nullptr;
  if (!is_fixed && global % (own * world_size) == 0) {
    core_.position().set_accumulation(global / (own * world_size));
    return;
  }
  TORCH_CHECK_VALUE(!is_fixed && global % world_size == 0, "[cohort] Trainer: the run had steps of ", global,
                    " samples on ", saved_world_size_, " ranks, which ", world_size, " ranks ",
                    is_fixed ? "cannot keep, as the loader has a batch sampler" : "cannot divide evenly",
                    "\n  hint: use another number of ranks, or set checkpoint.on_new_world_size = "
                    "OnNewWorldSize::kScaleLearningRate or kKeepAll");
  const int64_t share = global / world_size;
  int64_t smaller = std::min(own, share);
  while (share % smaller != 0) --smaller;
  auto options = loader;
  options.global_batch_size.reset();
  options.batch_size = smaller;
  train_.set_options(std::move(options));
  core_.position().set_accumulation(share / smaller);
}

void RunState::fit_to(const std::map<std::string, std::string>& metadata) {
  check_settings(metadata);
  saved_world_size_ = number_in(metadata, "world_size");
  const int64_t batch_size = number_in(metadata, "batch_size");
  const int64_t accumulation = number_in(metadata, "accumulation");
  saved_samples_ = batch_size * saved_world_size_;
  if (metadata.contains("stages")) saved_stages_ = number_in(metadata, "stages");
  if (metadata.contains("sequence_parts")) saved_sequence_shards_ = number_in(metadata, "sequence_parts");
  const auto own_buffers = metadata.find("own_buffers");
  saved_own_buffers_ = own_buffers != metadata.end() && own_buffers->second == "yes";
  const auto generators = metadata.find("generators");
  const auto own_generators = core_.place().generators();
  const bool are_alike = generators != metadata.end() && generators->second == kinds_of(own_generators);
  num_saved_generators_ = are_alike ? own_generators.size() : 1;
  if (is_same_world()) return;
  const int world_size = core_.place().num_data_ranks;
  switch (core_.options().checkpoint.on_new_world_size) {
    case OnNewWorldSize::kKeepGlobalBatch:
      keep_global_batch(batch_size, accumulation);
      break;
    case OnNewWorldSize::kScaleLearningRate:
      rate_factor_ = static_cast<double>(world_size) / static_cast<double>(saved_world_size_);
      break;
    case OnNewWorldSize::kKeepAll:
      break;
    case OnNewWorldSize::kRefuse:
      TORCH_CHECK_VALUE(false, "[cohort] Trainer: the checkpoint was made by ", saved_world_size_,
                        " ranks, but the job has ", world_size,
                        "\n  hint: set checkpoint.on_new_world_size to another value");
  }
  if (core_.place().rank != 0) return;
  base::log_warning(
      fmt::format("Trainer: the checkpoint was made by {} ranks, the job has {}: it continues with {} batches of {} "
                  "samples per step on each rank{}, and with other random numbers",
                  saved_world_size_, world_size, core_.position().accumulation(), batch_size_of(train_, world_size),
                  rate_factor_ == 1.0 ? "" : fmt::format(", learning rates times {}", rate_factor_)));
}

ShardedStateDict RunState::expected() {
  const auto prefixes = own_prefixes();
  ShardedStateDict state;
  add_model(state);
  for (const char* key : {"trainer", "schedulers", "scaler", "callbacks"}) state.insert(key, StateValue(Value()));
  if (has_own_numbers()) add_random_numbers(state, prefixes.part, num_saved_generators_);
  if (has_own_shards() && core_.strategy().has_own_buffers() && saved_own_buffers_) {
    ShardedStateDict own;
    add_own_buffers(own, prefixes.part);
    for (const auto& item : own) state.insert(item.key(), StateValue(item.value().tensor.clone()));
  }
  if (is_same_world()) state.insert(prefixes.line + "loss", StateValue(loss_));
  state.insert((is_same_world() ? prefixes.line : prefix_of(0)) + "loader", StateValue(Value()));
  return state;
}

void RunState::restore_loader(const Value& value) {
  if (value.isNone()) return;
  auto& position = core_.position();
  if (!is_same_world() && !shards_remaining_samples(train_)) {
    if (position.batch() > 0 && core_.place().rank == 0) {
      base::log_warning(
          "Trainer: the loader's own sampler does not know what other ranks have read, so the epoch begins again");
    }
    position.set_batch(0);
    return;
  }
  data::StateDict state;
  for (const auto& entry : value.toGenericDict()) state.emplace(entry.key().toStringRef(), tensor_of(entry.value()));
  train_.load_state_dict(state);
  const int64_t samples = batch_size_of(train_, core_.place().num_data_ranks) * core_.place().num_data_ranks;
  if (!is_same_world()) position.set_batch(position.batch() * saved_samples_ / samples);
}

void RunState::restore_schedulers(const Value& value) {
  const auto states = value.toListRef();
  TORCH_CHECK_VALUE(states.size() == task_.schedulers.size(), "[cohort] Trainer: the checkpoint has the state of ",
                    states.size(), " schedulers, but the task has ", task_.schedulers.size(),
                    "\n  hint: resume with the task that the run began with");
  for (size_t i = 0; i < states.size(); ++i) {
    const auto& schedule = task_.schedulers[i];
    if (!schedule.load_state_dict || states[i].isNone()) continue;
    schedule.load_state_dict(rate_factor_ == 1.0 ? states[i] : with_scaled_rates(states[i], rate_factor_));
  }
}

void RunState::scale_rates() {
  if (rate_factor_ == 1.0) return;
  auto& groups = core_.optimizer().param_groups();
  for (auto& group : groups) group.options().set_lr(group.options().get_lr() * rate_factor_);
  const auto notes = checkpoint::detail::SchedulerNotes::find(core_.optimizer());  // read by OneCycleLR and SWALR
  for (size_t i = 0; notes && i < groups.size(); ++i) {
    for (const char* name : {"initial_lr", "max_lr", "min_lr", "swa_lr"}) {
      if (const auto rate = notes->get(i, name)) notes->set(i, name, *rate * rate_factor_);
    }
  }
}

void RunState::restore(ShardedStateDict& state) {
  checkpoint::ModelAndOptimizerState parts;
  for (const auto& item : state) {
    if (item.key().starts_with("model.")) parts.model.insert(item.key().substr(6), item.value());
    if (item.key().starts_with("optimizer.")) parts.optimizer.insert(item.key().substr(10), item.value());
  }
  checkpoint::set_state_dict(core_.strategy().module(), core_.optimizer(), parts);
  restore_run(state, own_prefixes(), prefix_of(is_same_world() ? core_.place().data_rank : 0));
}

void RunState::restore_run(const ShardedStateDict& state, const Prefixes& prefixes, const std::string& loader_prefix) {
  if (has_own_shards()) restore_own_buffers(state, prefixes.part);
  const auto counters = state["trainer"].value.toGenericDict();
  core_.position().go_on_at({.epoch = counters.at("epoch").toInt(),
                             .step = counters.at("step").toInt(),
                             .batch = counters.at("batch").toInt(),
                             .samples = counters.at("samples").toInt()});
  restore_schedulers(state["schedulers"].value);
  scale_rates();
  if (auto* const scaler = core_.precision().scaler(); scaler && !state["scaler"].value.isNone()) {
    scaler->load_state_dict(state["scaler"].value);
  }
  const auto callbacks = state["callbacks"].value.toGenericDict();
  core_.each_callback([&](Callback& callback) {
    if (callback.name().empty() || !callbacks.contains(callback.name())) return;
    CallbackState kept;
    for (const auto& entry : callbacks.at(callback.name()).toGenericDict()) {
      kept.emplace(entry.key().toStringRef(), entry.value().toDouble());
    }
    callback.load_state_dict(kept);
  });
  restore_loader(state[loader_prefix + "loader"].value);
  if (is_same_world()) loss_.copy_(state[prefixes.line + "loss"].tensor);
  if (has_own_numbers()) {
    keep_random_numbers(state, prefixes.part);
  } else {
    seed_everything(core_.options().seed.value_or(0) + core_.position().step() + core_.place().drawing_rank());
  }
}

void RunState::restore_random_numbers() {
  const auto generators = core_.place().generators();
  for (size_t i = 0; i < random_numbers_.size(); ++i) checkpoint::set_rng_state(random_numbers_[i], generators[i]);
  random_numbers_.clear();
}

}  // namespace cohort::train::detail
