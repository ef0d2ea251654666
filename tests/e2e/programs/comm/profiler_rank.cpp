// profiler_rank RESULT: makes every operation under LibTorch's profiler and writes the names of its spans, one per line.
// profiler_python_rank.py makes the same calls.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <fstream>
#include <iostream>
#include <set>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/point_to_point.h"

namespace {

void run_operations() {
  const int rank = cohort::get_rank();
  const auto tensor = at::ones({4});
  const cohort::TensorList pair{at::ones({2}), at::ones({2})};
  cohort::all_reduce(tensor);
  cohort::broadcast(tensor, 0);
  cohort::reduce(tensor, 0);
  cohort::all_gather(pair, at::ones({2}));
  cohort::all_gather_single(tensor, at::ones({2}));
  cohort::gather(at::ones({2}), rank == 0 ? pair : cohort::TensorList(), 0);
  cohort::scatter(at::ones({2}), rank == 0 ? pair : cohort::TensorList(), 0);
  cohort::reduce_scatter(at::ones({2}), pair);
  cohort::reduce_scatter_single(at::ones({2}), tensor);
  cohort::all_to_all_single(tensor, at::ones({4}));
  if (rank == 0) {
    cohort::send(tensor, 1);
    cohort::recv(tensor, 1);
    cohort::recv(tensor);
  } else {
    cohort::recv(tensor, 0);
    cohort::send(tensor, 0);
    cohort::send(tensor, 0);
  }
  cohort::barrier();
}

}  // namespace

int main(int, char** argv) {
  namespace profiler = torch::autograd::profiler;
  try {
    cohort::init_process_group("gloo");
    const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
    const std::set<profiler::ActivityType> activities{profiler::ActivityType::CPU};
    profiler::prepareProfiler(config, activities);
    profiler::enableProfiler(config, activities);
    run_operations();
    std::set<std::string> names;
    const auto result = profiler::disableProfiler();
    for (const auto& event : result->events()) names.insert(event.name());
    std::ofstream out(argv[1]);
    for (const auto& name : names) out << name << '\n';
    cohort::destroy_process_group();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
