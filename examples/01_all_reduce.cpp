// Every rank contributes its rank plus one, and every rank gets the sum.
//
//   build/bin/cohort run --standalone --nproc-per-node 2 build/bin/examples/all_reduce
//
// prints, in either order:
//   rank 0 of 2: the sum is 3
//   rank 1 of 2: the sum is 3
#include <ATen/ops/full.h>
#include <cohort/comm/collectives/collectives.h>

#include <cstdio>

int main() {
  cohort::init_process_group();
  const at::Tensor value = at::full({1}, cohort::get_rank() + 1);
  cohort::all_reduce(value);
  std::printf("rank %d of %d: the sum is %g\n", cohort::get_rank(), cohort::get_world_size(), value.item<float>());
  cohort::destroy_process_group();
}
