#include "cohort/checkpoint/state/rng_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <mutex>
#include <string>
#include <utility>

#include "cohort/base/log/log.h"
#include "cohort/checkpoint/optimizer/python_values.h"
#include "cohort/comm/backend/accelerator.h"

namespace cohort::checkpoint {
namespace {

constexpr const char* kCpu = "cpu";

at::Generator generator_of(c10::Device device) {
  return device.is_cpu() ? at::detail::getDefaultCPUGenerator() : at::globalContext().defaultGenerator(device);
}

c10::Device device_at(const comm::Accelerator& accelerator, int index) {
  return {accelerator.type, static_cast<c10::DeviceIndex>(index)};
}

}  // namespace

at::Tensor rng_state(c10::Device device) {
  at::Generator generator = generator_of(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_rng_state(const at::Tensor& state, c10::Device device) {
  at::Generator generator = generator_of(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

at::Tensor rng_state() { return rng_state(c10::kCPU); }

void set_rng_state(const at::Tensor& state) { set_rng_state(state, c10::kCPU); }

c10::IValue all_rng_states() {
  auto states = detail::empty_dict();
  states.insert(std::string(kCpu), rng_state());
  const auto accelerator = comm::accelerator();
  if (!accelerator) return states;
  c10::List<at::Tensor> list;
  for (int i = 0; i < accelerator->num_devices; ++i) list.push_back(rng_state(device_at(*accelerator, i)));
  states.insert(c10::DeviceTypeName(accelerator->type, /*lower_case=*/true), list);
  return states;
}

void set_all_rng_states(const c10::IValue& states) {
  TORCH_CHECK_VALUE(states.isGenericDict(), "[cohort] states of random numbers are a dict, not a ", states.tagKind());
  std::vector<std::pair<c10::Device, at::Tensor>> all;
  const auto cpu = detail::entry_of(states, kCpu);
  TORCH_CHECK_VALUE(cpu.isTensor(), "[cohort] states of random numbers have no tensor \"cpu\", but ",
                    detail::keys_in_words(states), "\n  hint: give it what all_rng_states() has given");
  all.emplace_back(c10::kCPU, cpu.toTensor());
  const auto accelerator = comm::accelerator();
  for (const auto& entry : states.toGenericDict()) {
    const auto key = detail::key_text(entry.key());
    const c10::IValue list = entry.value();
    if (key == kCpu) continue;
    if (!accelerator || key != c10::DeviceTypeName(accelerator->type, /*lower_case=*/true)) {
      base::log_warning(
          fmt::format("set_all_rng_states: this machine has no device of type \"{}\": its states are left out", key));
      continue;
    }
    TORCH_CHECK_VALUE(list.isList(), "[cohort] the states of random numbers for \"", key, "\" are not a list");
    const auto items = list.toListRef();
    TORCH_CHECK_VALUE(static_cast<int>(items.size()) == accelerator->num_devices,
                      "[cohort] the checkpoint has states of ", items.size(), " devices of type \"", key,
                      "\", but this machine has ", accelerator->num_devices,
                      "\n  hint: set one of them with set_rng_state(state, device)");
    for (size_t i = 0; i < items.size(); ++i) {
      TORCH_CHECK_VALUE(items[i].isTensor(), "[cohort] state ", i, " of random numbers for \"", key,
                        "\" is not a tensor");
      all.emplace_back(device_at(*accelerator, static_cast<int>(i)), items[i].toTensor());
    }
  }
  for (const auto& [device, state] : all) set_rng_state(state, device);
}

}  // namespace cohort::checkpoint
