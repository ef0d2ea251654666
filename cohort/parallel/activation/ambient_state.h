/// The state around a call of forward that its recomputation must have too: random numbers and autocast.
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
  /// Reads the state of this thread: autocast of the CPU, of the accelerator and of the device types of `inputs`; with `with_rng`
  /// also the default generators of the CPU and of these devices.
  AmbientState(const std::vector<at::Tensor>& inputs, bool with_rng);

  class Again;

 private:
  struct Autocast {
    c10::DeviceType device_type;
    bool is_enabled;
    at::ScalarType dtype;
  };

  // The present state, of the kinds that `like` has.
  struct Current {
    const AmbientState& like;
  };
  explicit AmbientState(const Current& current);
  void apply() const;

  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
  std::vector<Autocast> autocasts_;
  bool is_autocast_cache_enabled_ = true;
};

/// Restores the state, and its destructor restores the state it found. Not for several threads at once, as generators themselves.
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
