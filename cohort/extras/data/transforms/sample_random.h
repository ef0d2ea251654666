/// SampleRandom: the random numbers of one example in one epoch. They depend only on (seed, epoch, index), so the transformed
/// example does not depend on the number of workers, nor on which worker reads it and when.
///
///     SampleRandom random(/*seed=*/0, epoch, index);
///     const at::Tensor crop = RandomCrop(32, {.padding = {4}})(image, random);
///
/// The numbers are Philox4x32-10's (Salmon et al., SC 2011), a counter-based generator: the seed is its key, and index, epoch and
/// the number of the draw are its counter, so no two examples share numbers.
///
/// Thread-safety: none; one thread at a time, as with any generator.
#pragma once

#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "cohort/export.h"

namespace cohort::data {

class COHORT_API SampleRandom {
 public:
  /// Throws c10::ValueError unless 0 <= epoch < 2^32 and 0 <= index.
  SampleRandom(uint64_t seed, int64_t epoch, int64_t index);

  /// Returns 64 random bits.
  uint64_t bits();
  /// Returns a multiple of 2^-53 in [0, 1).
  double uniform();
  /// Returns a number in [low, high); low if they are equal.
  double uniform(double low, double high);
  /// Returns an integer in [low, high), uniformly distributed, as torch.randint. Throws c10::ValueError unless low < high.
  int64_t integer(int64_t low, int64_t high);
  /// Returns true with this probability; 0 means never, 1 always.
  bool chance(double probability) { return uniform() < probability; }
  /// Returns a normally distributed number with mean 0 and standard deviation 1.
  double normal();
  /// Returns a number with distribution Beta(alpha, alpha). Throws c10::ValueError unless alpha > 0.
  double beta(double alpha);
  /// Returns 0 .. count - 1 in a random order, uniformly distributed.
  std::vector<int64_t> permutation(int64_t count);
  /// Returns a float32 tensor of normal().
  at::Tensor normal_tensor(at::IntArrayRef sizes);

 private:
  double log_gamma_draw(double alpha);

  at::philox_engine engine_;
};

}  // namespace cohort::data
