// A program outside Cohort's build: every rank adds its rank + 1, and checks the sum.
// Start with RANK and WORLD_SIZE set, and the path of a shared file as argument.
#include <ATen/ops/full.h>
#include <cohort/comm/collectives.h>
#include <cohort/comm/process_group.h>

#include <cstdio>
#include <string>

int main(int, char** argv) {
  cohort::init_process_group({.backend = "gloo", .init_method = std::string("file://") + argv[1]});
  const int world_size = cohort::get_world_size();
  const at::Tensor value = at::full({3}, cohort::get_rank() + 1.0);
  cohort::all_reduce(value);
  std::printf("rank %d of %d: %g\n", cohort::get_rank(), world_size, value[0].item<double>());
  cohort::destroy_process_group();
  return value[0].item<double>() == world_size * (world_size + 1) / 2.0 ? 0 : 1;
}
