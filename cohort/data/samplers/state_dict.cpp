#include "cohort/data/samplers/state_dict.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Utils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <utility>

#include "cohort/comm/error/exception_text.h"
#include "cohort/data/samplers/sampler.h"

namespace cohort::data {
namespace {

at::Tensor state_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

int64_t number_in(const StateDict& state, const std::string& name) {
  const auto found = state.find(name);
  TORCH_CHECK_VALUE(found != state.end(), "[cohort] the state dict of a DataLoader has no '", name, "'");
  const at::Tensor& value = found->second;
  const bool is_number =
      value.defined() && value.device().is_cpu() && value.scalar_type() == at::kLong && value.numel() == 1;
  TORCH_CHECK_VALUE(is_number && value.item<int64_t>() >= 0, "[cohort] '", name,
                    "' in the state dict of a DataLoader is not a whole number >= 0");
  return value.item<int64_t>();
}

void set_number(StateDict& state, const std::string& name, int64_t value) {
  state[name] = at::full({}, value, at::TensorOptions().dtype(at::kLong));
}

EpochGenerator::EpochGenerator(std::optional<at::Generator> given, Otherwise otherwise)
    : given_(std::move(given)), otherwise_(otherwise) {}

at::Generator EpochGenerator::begin() {
  const auto loaded = std::exchange(loaded_, at::Tensor());
  at::Generator generator;
  if (given_) {
    generator = *given_;
  } else if (loaded.defined()) {
    generator = make_generator(0);
  } else if (otherwise_ == Otherwise::kSeeded) {
    generator = make_generator(at::empty({}, at::TensorOptions().dtype(at::kLong)).random_().item<int64_t>());
  } else {
    generator = at::detail::getDefaultCPUGenerator();
  }
  if (loaded.defined()) set_state(generator, loaded);
  state_ = state_of(generator);
  return generator;
}

void EpochGenerator::add_to(StateDict& state, bool is_over, const std::string& name) const {
  if (loaded_.defined()) {
    state[name] = loaded_;
  } else if (is_over || !state_.defined()) {
    if (given_) state[name] = state_of(*given_);
  } else {
    state[name] = state_;
  }
}

void EpochGenerator::load(const StateDict& state, const std::string& name) {
  const auto found = state.find(name);
  if (found == state.end()) return;
  const at::Tensor& bytes = found->second;
  auto trial = make_generator(0);  // checks the state
  try {
    set_state(trial, bytes);
  } catch (const c10::Error& error) {
    TORCH_CHECK_VALUE(
        false, "[cohort] '", name,
        "' in the state dict of a DataLoader is not the state of a CPU generator: ", comm::text_of(error));
  }
  if (given_) {
    set_state(*given_, bytes);
  } else {
    loaded_ = bytes.clone();
  }
}

}  // namespace cohort::data
