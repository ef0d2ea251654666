// A rank of `recovery` that all-reduces: in the first attempt rank 1 then crashes, in the second both end.
#include <ATen/ops/ones.h>
#include <cohort/comm/collectives/collectives.h>

#include "benchmarks/launcher/crash_times.h"

int main(int, char** argv) {
  using namespace cohort::bench;
  cohort::init_process_group();
  const at::Tensor value = at::ones({1});
  cohort::all_reduce(value);
  if (value.item<float>() != 2) return 3;
  if (is_first_attempt()) {
    if (!is_rank("1")) ::pause();
    write_time(argv[1], "crash");
    ::_exit(1);
  }
  write_time(argv[1], "done");
  cohort::destroy_process_group();
}
