// Files that torch.save wrote before 1.6: one pickle after another, then storages.
#include "tests/fuzz/pt_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cohort::fuzz::check_pt_file(cohort::fuzz::text_of(data, size));
  return 0;
}
