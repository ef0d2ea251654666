// train_run FOLDER LAST_STEP OUT [MILLISECONDS]: trains a small net on all ranks, with a Checkpointer in FOLDER, and goes on from
// its newest checkpoint. A step takes at least so long. Prints "began at N" and, at the end or when it was asked to stop,
// "ended at N"; rank 0 then writes the state to OUT.
#include <ATen/Functions.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include "cohort/checkpoint/checkpointer/checkpointer.h"
#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/checkpoint/state/state_dict.h"
#include "cohort/comm/collectives/collectives.h"

namespace {

namespace checkpoint = cohort::checkpoint;

// Of a step the same on each rank and in each run.
void train_step(const torch::nn::Linear& net, int64_t step) {
  at::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) {
    at::Tensor change = at::full_like(parameter, static_cast<double>(step % 7) * 0.01) + parameter * 0.001;
    cohort::all_reduce(change);
    parameter.sub_(change);
  }
}

checkpoint::ShardedStateDict state_of(const torch::nn::Linear& net) {
  checkpoint::ShardedStateDict state;
  for (const auto& item : checkpoint::state_dict(*net)) state.insert(item.key(), item.value());
  return state;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::string folder = argv[1];
  const int64_t last_step = std::atoll(argv[2]);
  const std::chrono::milliseconds pause(argc > 4 ? std::atoi(argv[4]) : 0);
  cohort::init_process_group();
  torch::nn::Linear net(64, 32);
  {
    at::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) parameter.fill_(1);
  }
  int64_t step = 0;
  {
    checkpoint::Checkpointer checkpoints(folder, {.every_steps = 3, .stop_signals = {SIGTERM, SIGINT}, .keep_last = 2});
    auto state = state_of(net);
    step = checkpoints.load_latest(state).value_or(0);
    std::cout << "began at " << step << std::endl;
    while (step < last_step && !checkpoints.stop_requested()) {
      train_step(net, ++step);
      std::this_thread::sleep_for(pause);
      checkpoints.maybe_save([&] { return state_of(net); }, step);
    }
    checkpoints.wait();
  }
  std::cout << "ended at " << step << std::endl;
  if (cohort::get_rank() == 0) checkpoint::save_file(checkpoint::state_dict(*net), argv[3]);
  cohort::destroy_process_group();
  return 0;
}
