/// StateDict: what it takes to go on in the middle of an epoch. EpochGenerator: random numbers that can be drawn again.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "cohort/export.h"

namespace cohort::data {

/// CPU tensors by name, so that every format of checkpoints holds them.
using StateDict = std::map<std::string, at::Tensor>;

/// Throws c10::ValueError unless `state` has a whole number >= 0 of this name.
COHORT_API int64_t number_in(const StateDict& state, const std::string& name);
COHORT_API void set_number(StateDict& state, const std::string& name, int64_t value);

/// The generator that a sampler draws its epochs from.
class COHORT_API EpochGenerator {
 public:
  /// Without a generator of the program's: one for each epoch, seeded by LibTorch's default CPU generator (kSeeded), or that one
  /// itself (kDefault). Both are what samplers of PyTorch do.
  enum class Otherwise { kSeeded, kDefault };
  EpochGenerator(std::optional<at::Generator> given, Otherwise otherwise);

  /// For the next epoch.
  at::Generator begin();
  /// Adds what draws the epoch again that has begun last; `is_over`: what draws the one after it.
  void add_to(StateDict& state, bool is_over, const std::string& name = "generator") const;
  /// The next epoch will be drawn as that of add_to(); a generator of the program's has that state at once. Throws
  /// c10::ValueError for what is no state of a CPU generator.
  void load(const StateDict& state, const std::string& name = "generator");

 private:
  std::optional<at::Generator> given_;
  Otherwise otherwise_;
  at::Tensor state_;   ///< when the last epoch began; undefined: none has
  at::Tensor loaded_;  ///< for the next epoch; undefined: go on as usual
};

}  // namespace cohort::data
