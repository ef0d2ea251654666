// ddp-overhead: the reducer's cost in a step on one rank, without anything to reduce: preparing, a hook per parameter, finishing.
// Two equal lists of scalar parameters, one with a reducer, take blocks of steps in turn.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "benchmarks/support/question.h"
#include "benchmarks/support/turn_order.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/ddp/reducer.h"

namespace cohort::bench {
namespace {

constexpr int kCounts[] = {1, 10, 100, 1000};
constexpr double kBudgetBase = 1.0;           // microseconds per step
constexpr double kBudgetPerParameter = 0.15;  // microseconds

struct Scalars {
  std::vector<at::Tensor> parameters;
  std::unique_ptr<ddp::Reducer> reducer;
};

Scalars make_scalars(int count) {
  Scalars scalars;
  for (int i = 0; i < count; ++i) scalars.parameters.push_back(at::ones({}).requires_grad_());
  return scalars;
}

// Times only what a reducer can change: preparing and backward, not the forward pass.
double time_step(Scalars& scalars) {
  for (const auto& parameter : scalars.parameters) parameter.mutable_grad().reset();
  const auto loss = at::stack(scalars.parameters).sum();
  const auto begin = std::chrono::steady_clock::now();
  if (scalars.reducer) scalars.reducer->prepare();
  loss.backward();
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
  return elapsed.count();
}

double time_block(Scalars& scalars, int num_steps) {
  std::vector<double> times;
  for (int i = 0; i < num_steps; ++i) times.push_back(time_step(scalars));
  return median(std::move(times));
}

Row measure(int count, int num_rounds) {
  auto plain = make_scalars(count);
  auto hooked = make_scalars(count);
  hooked.reducer = std::make_unique<ddp::Reducer>(hooked.parameters);
  const int num_steps = std::clamp(20000 / count, 20, 400);
  time_block(plain, num_steps);
  time_block(hooked, num_steps);
  // Buckets are rebuilt in the order in which gradients arrived, which proves that every hook ran.
  TORCH_CHECK(hooked.reducer->has_rebuilt_buckets(), "the reducer saw no gradients");
  const auto times = measure_in_turns(
      {[&] { return time_block(plain, num_steps); }, [&] { return time_block(hooked, num_steps); }}, num_rounds);
  Row row = compare_with_budget(times[1], times[0], kBudgetBase + kBudgetPerParameter * count);
  row.case_name = "added/parameters=" + std::to_string(count) + "/ranks=1";
  row.unit = "us";
  return row;
}

}  // namespace

std::vector<Row> run_ddp_overhead(const Settings& settings) {
  at::set_num_threads(1);
  InitOptions options;
  options.backend = "gloo";
  options.rank = 0;
  options.world_size = 1;
  options.store = c10::make_intrusive<c10d::HashStore>();
  init_process_group(options);
  std::vector<Row> rows;
  std::vector<double> counts, added;
  for (const int count : kCounts) {
    rows.push_back(measure(count, settings.is_quick ? 12 : 200));
    counts.push_back(count);
    added.push_back(std::max(*rows.back().ours, 1e-3));
  }
  destroy_process_group();
  const auto line = fit_line(counts, added);
  std::printf("fit: %.2f us + %.3f us per parameter; budget: %.2f us + %.3f us\n", line.intercept, line.slope,
              kBudgetBase, kBudgetPerParameter);
  return rows;
}

}  // namespace cohort::bench
