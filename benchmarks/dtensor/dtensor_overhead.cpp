// dtensor-overhead: the cost of an operation on DTensors above the same one on the shards, on one rank, without communication: to
// find the sharding, to run it on the shards, and to make a DTensor of the result. Blocks of both alternate.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "benchmarks/support/question.h"
#include "benchmarks/support/turn_order.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/dtensor/api/dtensor.h"

namespace cohort::bench {
namespace {

constexpr double kBudgetPerOperation = 1.0;  // microseconds
constexpr int kCallsInABlock = 500;

struct MeasuredOperation {
  const char* name;
  /// Takes two matrices of 8 x 8.
  at::Tensor (*run)(const at::Tensor& a, const at::Tensor& b);
};

const MeasuredOperation kOperations[] = {
    {"add", [](const at::Tensor& a, const at::Tensor& b) { return a.add(b); }},
    {"mm", [](const at::Tensor& a, const at::Tensor& b) { return a.mm(b); }},
    {"gelu", [](const at::Tensor& a, const at::Tensor&) { return at::gelu(a); }},
    {"transpose", [](const at::Tensor& a, const at::Tensor&) { return a.transpose(0, 1); }},
    {"view",
     [](const at::Tensor& a, const at::Tensor&) {
       return a.view({8, 2, 4});
     }},
    {"sum", [](const at::Tensor& a, const at::Tensor&) { return a.sum(1); }},
    {"softmax", [](const at::Tensor& a, const at::Tensor&) { return a.softmax(1); }},
    {"add_", [](const at::Tensor& a, const at::Tensor& b) { return a.add_(b, 1e-6); }},
};

double time_calls(const MeasuredOperation& operation, const at::Tensor& a, const at::Tensor& b) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kCallsInABlock; ++i) operation.run(a, b);
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
  return elapsed.count() / kCallsInABlock;
}

Row measure_operation(const MeasuredOperation& operation, const DeviceMesh& mesh, int num_rounds) {
  const auto a = at::rand({8, 8}), b = at::rand({8, 8});
  const DTensor left = distribute_tensor(a.clone(), mesh, {Shard(0)});
  const DTensor right =
      distribute_tensor(b, mesh, {std::string(operation.name) == "mm" ? Placement(Replicate()) : Shard(0)});
  TORCH_CHECK(at::equal(DTensor(operation.run(left, right)).full_tensor(), operation.run(a.clone(), b)), operation.name,
              " of DTensors is another");
  const auto times = measure_in_turns(
      {[&] { return time_calls(operation, a, b); }, [&] { return time_calls(operation, left, right); }}, num_rounds);
  Row row = compare_with_budget(times[1], times[0], kBudgetPerOperation);
  row.case_name = std::string("added/") + operation.name + "/ranks=1";
  row.unit = "us";
  return row;
}

}  // namespace

std::vector<Row> run_dtensor_overhead(const Settings& settings) {
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  InitOptions options;
  options.backend = "gloo";
  options.rank = 0;
  options.world_size = 1;
  options.store = c10::make_intrusive<c10d::HashStore>();
  init_process_group(options);
  std::vector<Row> rows;
  {
    const auto mesh = init_device_mesh("cpu", {1});
    for (const auto& operation : kOperations) {
      rows.push_back(measure_operation(operation, mesh, settings.is_quick ? 20 : 100));
    }
  }
  destroy_process_group();
  return rows;
}

}  // namespace cohort::bench
