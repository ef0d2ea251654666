// Ranks without a launcher: set four variables, start the program once per rank.
//
//   export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29518
//   RANK=0 build/bin/examples/ranks_by_hand & RANK=1 build/bin/examples/ranks_by_hand; wait
//
// Rank 0 serves the store on MASTER_PORT; ranks on other hosts need its address in MASTER_ADDR. Each rank prints what it received
// from its neighbor and from all (lines in any order):
//   rank 0 of 2 got 1 from rank 1; all ranks together hold 0 1
//   rank 1 of 2 got 0 from rank 0; all ranks together hold 0 1
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/comm/collectives/point_to_point.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstdio>
#include <exception>
#include <string>

namespace {

void run() {
  cohort::init_process_group({.backend = "gloo", .init_method = "env://"});
  const int rank = cohort::get_rank(), world_size = cohort::get_world_size();
  const int next = (rank + 1) % world_size, previous = (rank + world_size - 1) % world_size;

  const at::Tensor mine = at::full({1}, rank);
  at::Tensor received = mine.clone();
  if (world_size > 1) {
    const auto sending = cohort::isend(mine, next);
    cohort::recv(received, previous);
    sending->wait();
  }
  const at::Tensor all = at::empty({world_size}, mine.options());
  cohort::all_gather_single(all, mine);

  std::string everyone;
  for (int i = 0; i < world_size; ++i) everyone.append(1, ' ').append(std::to_string(all[i].item<int>()));
  std::printf("rank %d of %d got %d from rank %d; all ranks together hold%s\n", rank, world_size, received.item<int>(),
              previous, everyone.c_str());
  cohort::destroy_process_group();
}

}  // namespace

int main() {
  try {
    run();
  } catch (const c10::Error& error) {  // a missing variable, a peer that never came
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  }
}
