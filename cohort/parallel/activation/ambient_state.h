/// What surrounds a call of forward and must surround its repetition: random numbers and autocast.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <utility>
#include <vector>

namespace cohort::activation {

class AmbientState {
 public:
  /// Reads what is set in this thread: autocast of the CPU, of the accelerator and of the types of the devices on which `inputs`
  /// lie; with `with_rng` also the default generators of the CPU and of these devices.
  AmbientState(const std::vector<at::Tensor>& inputs, bool with_rng);

  class Again;

 private:
  struct Autocast {
    c10::DeviceType device_type;
    bool is_enabled;
    at::ScalarType dtype;
  };

  // What is set now, of the kinds that `like` has.
  struct Current {
    const AmbientState& like;
  };
  explicit AmbientState(const Current& current);
  void apply() const;

  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
  std::vector<Autocast> autocasts_;
  bool is_autocast_cache_enabled_ = true;
};

/// Sets it all again, and restores at its end what it found. Not for several threads at once, as generators are not.
class AmbientState::Again {
 public:
  explicit Again(const AmbientState& state);
  Again(const Again&) = delete;
  Again& operator=(const Again&) = delete;
  ~Again();

 private:
  const AmbientState found_;
};

}  // namespace cohort::activation
