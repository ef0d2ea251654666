#include "tests/support/sim_device/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "tests/support/sim_device/dispatch_key.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

constexpr int64_t kStateBytes = 2 * sizeof(uint64_t);

class SimGenerator final : public c10::GeneratorImpl {
 public:
  explicit SimGenerator(c10::DeviceIndex index)
      : GeneratorImpl(sim::device(index), c10::DispatchKeySet(dispatch_key())) {}

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }

  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == kStateBytes, "a state of a simulated device's generator has ", kStateBytes, " bytes");
    const auto* const words = static_cast<const uint64_t*>(state.data());
    seed_ = words[0];
    offset_ = words[1];
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const auto state = at::empty({kStateBytes}, at::kByte);
    auto* const words = reinterpret_cast<uint64_t*>(state.mutable_data_ptr());
    words[0] = seed_;
    words[1] = offset_;
    return state.getIntrusivePtr();
  }

  SimGenerator* clone_impl() const override {
    auto* const copy = new SimGenerator(device().index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }

  // Neighboring counts give unrelated seeds (SplitMix64).
  uint64_t next_seed() {
    const std::lock_guard lock(mutex_);
    uint64_t bits = seed_ + ++offset_ * 0x9E3779B97F4A7C15u;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
    return bits ^ (bits >> 31);
  }

 private:
  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

c10::DeviceIndex index_or_current(c10::DeviceIndex device) { return device < 0 ? current_device() : device; }

}  // namespace

const at::Generator& default_generator(c10::DeviceIndex device) {
  static auto* const all = [] {
    auto* const made = new std::vector<at::Generator>;
    for (int i = 0; i < num_devices(); ++i) made->push_back(new_generator(static_cast<c10::DeviceIndex>(i)));
    return made;
  }();
  return all->at(static_cast<size_t>(index_or_current(device)));
}

at::Generator new_generator(c10::DeviceIndex device) {
  return at::make_generator<SimGenerator>(index_or_current(device));
}

at::Generator generator_of_kernel(const at::Generator& given, c10::DeviceIndex device) {
  auto generator = given.defined() ? given : default_generator(device);
  auto* const own = dynamic_cast<SimGenerator*>(generator.unsafeGetGeneratorImpl());
  TORCH_CHECK(own, "Expected a '", c10::DeviceTypeName(type(), /*lower_case=*/true),
              "' device type for generator but found '", generator.device().type(), "'");
  return at::make_generator<at::CPUGeneratorImpl>(own->next_seed());
}

}  // namespace cohort::sim
