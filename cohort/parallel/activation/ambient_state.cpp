#include "cohort/parallel/activation/ambient_state.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <mutex>
#include <set>
#include <tuple>

#include "cohort/comm/backend/accelerator.h"

namespace cohort::activation {
namespace {

at::Tensor state_of(const at::Generator& generator) {
  at::Generator handle = generator;
  const std::lock_guard lock(handle.mutex());
  return handle.get_state();
}

bool has_generator(const c10::Device& device) { return !device.is_cpu() && !device.is_meta(); }

}  // namespace

AmbientState::AmbientState(const std::vector<at::Tensor>& inputs, bool with_rng)
    : is_autocast_cache_enabled_(at::autocast::is_autocast_cache_enabled()) {
  std::set<c10::DeviceType> device_types{c10::DeviceType::CPU};
  if (const auto accelerator = comm::accelerator_type()) device_types.insert(*accelerator);
  const auto precedes = [](const c10::Device& a, const c10::Device& b) {
    return std::tuple(a.type(), a.index()) < std::tuple(b.type(), b.index());
  };
  std::set<c10::Device, decltype(precedes)> devices(precedes);
  for (const at::Tensor& input : inputs) {
    device_types.insert(input.device().type());
    if (has_generator(input.device())) devices.insert(input.device());
  }
  for (const auto type : device_types) {
    if (!at::autocast::is_autocast_available(type)) continue;
    autocasts_.push_back({type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)});
  }
  if (!with_rng) return;
  const auto keep = [&](const at::Generator& generator) { generators_.emplace_back(generator, state_of(generator)); };
  keep(at::globalContext().defaultGenerator(at::kCPU));
  for (const auto& device : devices) keep(at::globalContext().defaultGenerator(device));
}

AmbientState::AmbientState(const Current& current)
    : is_autocast_cache_enabled_(at::autocast::is_autocast_cache_enabled()) {
  for (const auto& [generator, state] : current.like.generators_) {
    generators_.emplace_back(generator, state_of(generator));
  }
  for (const auto& [type, is_enabled, dtype] : current.like.autocasts_) {
    autocasts_.push_back({type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)});
  }
}

void AmbientState::apply() const {
  for (const auto& [generator, state] : generators_) {
    at::Generator handle = generator;
    const std::lock_guard lock(handle.mutex());
    handle.set_state(state);
  }
  for (const auto& [type, is_enabled, dtype] : autocasts_) {
    at::autocast::set_autocast_enabled(type, is_enabled);
    at::autocast::set_autocast_dtype(type, dtype);
  }
  at::autocast::set_autocast_cache_enabled(is_autocast_cache_enabled_);
}

AmbientState::Again::Again(const AmbientState& state) : found_(Current{state}) {
  state.apply();
  at::autocast::increment_nesting();
}

AmbientState::Again::~Again() {
  // Clears the cache as torch.autocast does at its end: casts of parameters belong to the pass that made them.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  found_.apply();
}

}  // namespace cohort::activation
