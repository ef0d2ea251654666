#include "cohort/train/run/seed_everything.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

namespace cohort::train {

int64_t seed_everything(int64_t seed) {
  TORCH_CHECK_VALUE(seed >= 0, "[cohort] seed_everything: a seed is not negative, but got ", seed);
  at::manual_seed(static_cast<uint64_t>(seed));
  return seed;
}

}  // namespace cohort::train
