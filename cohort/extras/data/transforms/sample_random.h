/// SampleRandom: the random numbers of one example in one epoch. They follow from (seed, epoch, index) alone, so what a
/// transform makes of an example does not depend on how many workers there are, nor on which of them reads it, nor when.
///
///     SampleRandom random(/*seed=*/0, epoch, index);
///     const at::Tensor crop = RandomCrop(32, {.padding = {4}})(image, random);
///
/// The numbers are those of Philox4x32-10 (Salmon et al., SC 2011), which counts instead of stirring a state: the seed is its
/// key, and index, epoch and the number of the draw are its counter, so no two examples share numbers.
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

  /// 64 random bits.
  uint64_t bits();
  /// In [0, 1), a multiple of 2^-53.
  double uniform();
  /// In [low, high); low where they are equal.
  double uniform(double low, double high);
  /// In [low, high), each as often, as torch.randint. Throws c10::ValueError unless low < high.
  int64_t integer(int64_t low, int64_t high);
  /// True with this probability; 0 is never, 1 always.
  bool chance(double probability) { return uniform() < probability; }
  /// Of mean 0 and deviation 1.
  double normal();
  /// Of the distribution Beta(alpha, alpha). Throws c10::ValueError unless alpha > 0.
  double beta(double alpha);
  /// 0 .. count - 1 in any order, each order as often.
  std::vector<int64_t> permutation(int64_t count);
  /// A float32 tensor of normal().
  at::Tensor normal_tensor(at::IntArrayRef sizes);

 private:
  double log_gamma_draw(double alpha);

  at::philox_engine engine_;
};

}  // namespace cohort::data
