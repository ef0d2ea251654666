// fully_shard on a module whose parameters are DTensors: what a shard is, and what is said where it cannot be one.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "cohort/dtensor/api/distribute_module.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/fsdp/full_tensor.h"
#include "cohort/parallel/fsdp/replicate.h"
#include "cohort/parallel/optim/grad_scaler.h"
#include "tests/parallel/together/gpt_run.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::run_workers;

DeviceMesh two_by_two() {
  init_process_group(test::backend_of_tests().c_str());
  return init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
}

// weight: 7 x 6, so that neither tp nor dp divides its rows.
torch::nn::Linear linear() {
  torch::nn::Linear net(6, 7);
  const at::NoGradGuard no_grad;
  net->weight.copy_(at::arange(42).view({7, 6}));
  net->bias.copy_(at::arange(7));
  return net;
}

void shard_weights(torch::nn::Linear& net, const DeviceMesh& mesh, const Placement& weight) {
  dtensor::distribute_parameters(*net, mesh, {{"weight", {weight}}});
  distribute_module(*net, mesh);
}

COHORT_WORKER(together_specs) {
  const auto mesh = two_by_two();
  const auto expect = [&](const Placement& placement, int64_t fsdp_dim, const Placements& expected,
                          const DeviceMesh::AxisNames& axes) {
    auto net = linear();
    shard_weights(net, mesh["tp"], placement);
    auto model = fully_shard(net, {.mesh = mesh["dp"], .shard_placement_fn = [&](const at::Tensor& parameter) {
                                     return parameter.dim() == 2 ? Shard(fsdp_dim) : Shard(0);
                                   }});
    REQUIRE(is_dtensor(net->weight) && net->weight.sizes() == at::IntArrayRef({7, 6}));
    const auto weight = fsdp::sharded_parameters(*model).front();
    REQUIRE(!is_dtensor(weight.shard) && weight.shard.requires_grad());
    REQUIRE_EQUAL(to_string(weight.spec->placements()), to_string(expected));
    REQUIRE(weight.spec->mesh().axis_names() == axes);
    REQUIRE(at::equal(DTensor(weight.shard.detach(), *weight.spec).full_tensor(), linear()->weight));
    const auto full = fsdp::full_tensor(weight);
    REQUIRE(full.defined() == (get_rank() == 0));
    REQUIRE(!full.defined() || at::equal(full, linear()->weight));
  };
  expect(Shard(0), 0, {StridedShard(0, 2), Shard(0)}, {"dp", "tp"});
  expect(Shard(1), 0, {Shard(0), Shard(1)}, {"dp", "tp"});
  expect(Replicate(), 0, {Shard(0), Replicate()}, {"dp", "tp"});
  expect(Shard(0), 1, {Shard(1), Shard(0)}, {"dp", "tp"});
  expect(StridedShard(0, 3), 0, {StridedShard(0, 3), Shard(0)}, {"tp", "dp"});
}

TEST(TogetherShards, AreThoseOfPythonAndMakeUpTheParameter) {
  run_workers("together_specs", {.world_size = 4}).expect_success();
}

COHORT_WORKER(together_meshes) {
  init_process_group(test::backend_of_tests().c_str());
  const auto text_of = [](const parallel::ParallelDims& dims) {
    const auto mesh = parallel::data_parallel_mesh(dims.build_mesh("cpu"));
    return mesh ? mesh->to_string() : std::string("none");
  };
  REQUIRE_EQUAL(text_of({.tp = -1}), "none");
  REQUIRE_EQUAL(text_of({.dp_shard = -1}), "DeviceMesh((dp_shard_cp=4), 'cpu', stride=(1,))");
  REQUIRE_EQUAL(text_of({.dp_shard = 2, .tp = 2}), "DeviceMesh((dp_shard_cp=2), 'cpu', stride=(2,))");
  REQUIRE_EQUAL(text_of({.dp_shard = 2, .cp = 2}), "DeviceMesh((dp_shard_cp=4), 'cpu', stride=(1,))");
  REQUIRE_EQUAL(text_of({.dp_replicate = 2, .cp = 2}),
                "DeviceMesh((dp_replicate=2, dp_shard_cp=2), 'cpu', stride=(2, 1))");
  REQUIRE_EQUAL(text_of({.dp_replicate = 2, .tp = 2}),
                "DeviceMesh((dp_replicate=2, dp_shard_cp=1), 'cpu', stride=(2, ()))");
  const auto part_of = [](const parallel::ParallelDims& dims) {
    return parallel::data_shard_of(dims.build_mesh("cpu"));
  };
  const auto rank = get_rank();
  const auto pairs = part_of({.dp_shard = 2, .tp = 2}), copies = part_of({.dp_replicate = 2, .dp_shard = 2});
  REQUIRE(pairs.num_replicas == 2 && pairs.rank == rank / 2);
  REQUIRE(copies.num_replicas == 4 && copies.rank == rank);
  REQUIRE(part_of({.cp = 4}).num_replicas == 1 && part_of({.cp = 4}).rank == 0);
}

TEST(TogetherShards, MeshOfTheDataParallelAxes) { run_workers("together_meshes", {.world_size = 4}).expect_success(); }

COHORT_WORKER(together_other_mesh) {
  const auto mesh = two_by_two();
  auto net = linear();
  distribute_module(*net, DeviceMesh::from_group(mesh.group("tp"), "cpu", {"tp"}));
  test::print_error([&] { fully_shard(net, {.mesh = mesh["dp"]}); });
}

TEST(TogetherShards, MeshOfAnotherOriginMessage) {
  const auto results = run_workers("together_other_mesh", {.world_size = 4});
  results.expect_success();
  EXPECT_EQ(results[0].output,
            "FSDP requires the DP and model parallel TP/EP mesh to have the same parent mesh but got "
            "DeviceMesh((dp=2), 'cpu', stride=(2,)) and DeviceMesh((tp=2), 'cpu', stride=(1,)): Cannot concatenate "
            "DeviceMeshes derived from different device meshs\n"
            "  hint: make one mesh with an axis for each, and give fully_shard mesh[\"dp\"], and the module's "
            "parameters mesh[\"tp\"]\n");
}

// Replicated on the data-parallel axis, or refused.
COHORT_WORKER(together_whole_mesh) {
  const auto mesh = two_by_two();
  for (const bool one_memory : {true, false}) {
    auto net = linear();
    dtensor::distribute_parameters(*net, mesh, {{"weight", {Replicate(), Shard(0)}}});
    distribute_module(*net, mesh);
    auto model = fully_shard(
        net, {.mesh = mesh, .dp_mesh_dims = fsdp::DataParallelMeshDims{.shard = {"dp"}}, .one_memory = one_memory});
    const auto weight = fsdp::sharded_parameters(*model).front();
    REQUIRE_EQUAL(to_string(weight.spec->placements()), to_string(Placements{StridedShard(0, 2), Shard(0)}));
    REQUIRE(weight.spec->mesh().axis_names() == DeviceMesh::AxisNames({"dp", "tp"}));
    REQUIRE(at::equal(DTensor(weight.shard.detach(), *weight.spec).full_tensor(), linear()->weight));
    const auto full = fsdp::full_tensor(weight);
    REQUIRE(full.defined() == (get_rank() == 0) && (!full.defined() || at::equal(full, linear()->weight)));
    int64_t num_calls = 0;
    model->write([&](const std::string&, const at::Tensor& whole) {
      ++num_calls;
      whole.mul_(2);
    });
    REQUIRE(num_calls == (get_rank() == 0 ? 2 : 0));
    REQUIRE(at::equal(DTensor(weight.shard.detach(), *weight.spec).full_tensor(), linear()->weight * 2));
  }
  const auto error_with = [&](const Placements& placements, const fsdp::DataParallelMeshDims& dims) {
    auto net = linear();
    dtensor::distribute_parameters(*net, mesh, {{"weight", placements}});
    distribute_module(*net, mesh);
    return test::error_of([&] { fully_shard(net, {.mesh = mesh, .dp_mesh_dims = dims}); });
  };
  REQUIRE_EQUAL(error_with({Shard(1), Shard(0)}, {.shard = {"dp"}}),
                "Expected Replicate() on DP shard dim 'dp' (index 0) but got " + Placement(Shard(1)).to_string());
  REQUIRE_EQUAL(error_with({Shard(1), Shard(0)}, {.replicate = {"dp"}}),
                "Expected Replicate() on DP replicate dim 'dp' (index 0) but got " + Placement(Shard(1)).to_string());
}

TEST(TogetherShards, OnTheFullMesh) { run_workers("together_whole_mesh", {.world_size = 4}).expect_success(); }

COHORT_WORKER(together_ddp) {
  const auto mesh = two_by_two();
  auto net = linear();
  distribute_module(*net, mesh["tp"]);
  test::print_error([&] { DistributedDataParallel(net, ddp::Options{.process_group = mesh.group("dp")}); });
}

TEST(TogetherShards, DdpTakesNoDTensorsMessage) {
  const auto results = run_workers("together_ddp", {.world_size = 4});
  results.expect_success();
  EXPECT_EQ(results[0].output,
            "[cohort] DistributedDataParallel: parameter \"weight\" is a DTensor, as with tensor parallelism, which "
            "its buckets cannot hold\n  hint: use cohort::replicate(model, {.mesh = mesh[\"dp\"]}) instead\n");
}

// As the hint says.
COHORT_WORKER(together_replicate) {
  const auto mesh = two_by_two();
  auto alone = linear(), net = linear();
  dtensor::distribute_parameters(*net, mesh["tp"], {{"weight", {Shard(0)}}});
  distribute_module(*net, mesh["tp"]);
  auto model = replicate(net, {.mesh = mesh["dp"]});
  const auto input = at::full({2, 6}, 1.0 + static_cast<double>(mesh.local_rank("dp")));
  gpt::whole(model->forward(input).sum()).backward();
  alone->forward(at::full({2, 6}, 1.5)).sum().backward();
  for (const auto& parameter : fsdp::sharded_parameters(*model)) {
    const auto whole = DTensor(parameter.shard.grad(), *parameter.spec).full_tensor();
    REQUIRE(at::allclose(whole, alone->named_parameters()[parameter.name].grad()));
  }
}

TEST(TogetherShards, ReplicateKeepsCopiesAlike) {
  run_workers("together_replicate", {.world_size = 4}).expect_success();
}

COHORT_WORKER(together_write) {
  const auto mesh = two_by_two();
  for (const bool one_memory : {true, false}) {
    auto net = linear();
    shard_weights(net, mesh["tp"], Shard(0));
    auto model = fully_shard(net, {.mesh = mesh["dp"], .one_memory = one_memory});
    int64_t num_calls = 0;
    model->write([&](const std::string&, const at::Tensor& full) {
      ++num_calls;
      full.mul_(2);
    });
    REQUIRE(num_calls == (get_rank() == 0 ? 2 : 0));
    const auto weight = fsdp::sharded_parameters(*model).front();
    REQUIRE(at::equal(DTensor(weight.shard.detach(), *weight.spec).full_tensor(), linear()->weight * 2));
    const auto text = test::error_of(
        [&] { model->write([](const std::string&, const at::Tensor&) { throw std::runtime_error("no such file"); }); });
    REQUIRE_EQUAL(text, "[cohort] write() failed on rank 0 of the group: no such file");
  }
}

TEST(TogetherShards, OneRankWritesTheFullParameter) {
  run_workers("together_write", {.world_size = 4}).expect_success();
}

COHORT_WORKER(together_mixed_precision) {
  const auto mesh = two_by_two();
  for (const bool one_memory : {true, false}) {
    auto net = linear();
    shard_weights(net, mesh["tp"], Shard(0));
    auto model = fully_shard(net, {.mesh = mesh["dp"],
                                   .mp_policy = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat},
                                   .one_memory = one_memory});
    const auto out = model->forward(at::ones({2, 6}));
    REQUIRE(is_dtensor(out) && out.scalar_type() == at::kBFloat16);
    out.sum().backward();
    const auto weight = fsdp::sharded_parameters(*model).front();
    REQUIRE(weight.shard.scalar_type() == at::kFloat && weight.shard.grad().scalar_type() == at::kFloat);
    REQUIRE(at::equal(weight.shard.grad(), at::full_like(weight.shard, 2)));
  }
}

TEST(TogetherShards, ComputeInTheDtypeOfThePolicy) {
  run_workers("together_mixed_precision", {.world_size = 4}).expect_success();
}

// A gradient that is infinite on one rank alone: all skip the step.
COHORT_WORKER(together_scaler) {
  const auto mesh = two_by_two();
  auto net = linear();
  shard_weights(net, mesh["tp"], Shard(0));
  auto model = fully_shard(net, {.mesh = mesh["dp"]});
  optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.1));
  amp::GradScaler scaler(amp::GradScalerOptions{.device = at::kCPU});
  scaler.scale(gpt::whole(model->forward(at::ones({2, 6})).sum())).backward();
  const auto weight = fsdp::sharded_parameters(*model).front().shard;
  const auto before = weight.detach().clone();
  if (get_rank() == 3) weight.mutable_grad().fill_(INFINITY);
  scaler.step(optimizer);
  scaler.update();
  REQUIRE(at::equal(weight, before) && scaler.get_scale() < 65536.0);
}

TEST(TogetherShards, AllRanksSkipAStepWhereOneHasAnInfiniteGradient) {
  run_workers("together_scaler", {.world_size = 4}).expect_success();
}

}  // namespace
}  // namespace cohort
