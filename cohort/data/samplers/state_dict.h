/// StateDict: the state to resume in the middle of an epoch. EpochGenerator: random numbers that can be drawn again.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "cohort/export.h"

namespace cohort::data {

/// CPU tensors by name, which every checkpoint format can hold.
using StateDict = std::map<std::string, at::Tensor>;

/// Throws c10::ValueError unless `state` has an integer >= 0 of this name.
COHORT_API int64_t number_in(const StateDict& state, const std::string& name);
COHORT_API void set_number(StateDict& state, const std::string& name, int64_t value);

/// The generator from which a sampler draws its epochs.
class COHORT_API EpochGenerator {
 public:
  /// The generator if the program gives none: one per epoch, seeded by LibTorch's default CPU generator (kSeeded), or the default
  /// generator itself (kDefault). PyTorch's samplers do both.
  enum class Otherwise { kSeeded, kDefault };
  EpochGenerator(std::optional<at::Generator> given, Otherwise otherwise);

  /// Returns the generator for the next epoch.
  at::Generator begin();
  /// Adds the state that draws the current epoch again; if `is_over`, the state that draws the next one.
  void add_to(StateDict& state, bool is_over, const std::string& name = "generator") const;
  /// Makes the next epoch that of add_to(). A generator of the program gets this state at once. Throws c10::ValueError if it is
  /// not a state of a CPU generator.
  void load(const StateDict& state, const std::string& name = "generator");

 private:
  std::optional<at::Generator> given_;
  Otherwise otherwise_;
  at::Tensor state_;   ///< at the beginning of the current epoch; undefined before the first one
  at::Tensor loaded_;  ///< for the next epoch; undefined if nothing was loaded
};

}  // namespace cohort::data
