// uncaught_rank [forgets-init]: a rank of env:// that is in a group and then throws what nobody catches. Rank 1 does; the others
// wait for it. With the argument no rank makes a group.
#include <ATen/ops/ones.h>

#include <stdexcept>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"

int main(int argc, char**) {
  if (argc == 1) cohort::init_process_group();
  auto tensor = at::ones({4});
  cohort::all_reduce(tensor);
  if (cohort::get_rank() == 1) throw std::runtime_error("the data set has no file train/0007");
  cohort::all_reduce(tensor);
  return 0;
}
