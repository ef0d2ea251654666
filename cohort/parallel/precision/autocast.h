/// Autocast: operations in its scope run in the dtype that suits each, as under torch.autocast. Convolutions and matrix products
/// run in a narrow dtype, losses and similar operations in float32; parameters stay as they are, and are cast once per region.
///
///     at::Tensor loss;
///     {
///       const cohort::Autocast autocast(at::kCPU);               // bfloat16; float16 on accelerators
///       loss = F::cross_entropy(model(images), labels);
///     }
///     loss.backward();                                           // outside: each operation in the dtype of its forward
///
/// Regions nest, and one with `enabled = false` is a region without casts. For float16 gradients that vanish see
/// parallel/optim/grad_scaler.h.
/// Thread-safety: the state belongs to the thread; a region ends in the thread in which it began.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <optional>

#include "cohort/export.h"

namespace cohort {

struct AutocastOptions {
  /// torch::kBFloat16 or torch::kHalf; another one gives a warning, and disables the region. If absent, the present setting,
  /// which is bfloat16 on the CPU and float16 on accelerators unless a surrounding region has set another.
  std::optional<c10::ScalarType> dtype = {};
  bool enabled = true;
  /// Whether a parameter is cast once and reused until the outermost region ends. If absent, as in the surrounding region; true
  /// outside.
  std::optional<bool> cache_enabled = {};
};

class COHORT_API Autocast {
 public:
  /// For operations on tensors on devices of this type. If the machine has no such device, it warns and is disabled. Throws
  /// c10::Error for a type without autocast.
  explicit Autocast(c10::DeviceType device_type, const AutocastOptions& options = {});
  /// Restores the earlier state, also after an exception. The end of the outermost region frees the casts of parameters.
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  struct State {
    bool is_enabled;
    c10::ScalarType dtype;
    bool is_cache_enabled;
  };
  static State state_of(c10::DeviceType device_type);
  void set(const State& state) const;

  const c10::DeviceType device_type_;
  const State found_;
};

}  // namespace cohort
