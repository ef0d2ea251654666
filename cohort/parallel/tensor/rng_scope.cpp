#include "cohort/parallel/tensor/rng_scope.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <limits>
#include <mutex>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/tensor/group_place.h"

namespace cohort::parallel {
namespace {

// The finalizer of SplitMix64: it makes neighboring numbers unrelated.
uint64_t mixed(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

RngScope::RngScope(RngStreams streams, const Group& group, c10::Device device)
    : generator_(at::globalContext().defaultGenerator(device)) {
  const at::NoGradGuard no_grad;
  const auto place = parallel::place_in(group);
  auto number = at::empty({1}, at::TensorOptions(at::kLong).device(device));
  number.random_(0, std::numeric_limits<int64_t>::max(), generator_);
  if (streams == RngStreams::kSame && place.group) broadcast(number, group_rank(0), {.group = place.group});
  const auto rank = streams == RngStreams::kDifferent ? static_cast<uint64_t>(place.rank) + 1 : 0;
  const auto seed = mixed(static_cast<uint64_t>(number.item<int64_t>()) ^ mixed(rank));
  const std::lock_guard lock(generator_.mutex());
  state_ = generator_.get_state();
  generator_.set_current_seed(seed);
}

RngScope::~RngScope() {
  const std::lock_guard lock(generator_.mutex());
  generator_.set_state(state_);
}

}  // namespace cohort::parallel
