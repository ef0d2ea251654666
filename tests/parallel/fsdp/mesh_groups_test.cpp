// Which ranks share parameters where a mesh has more axes than data parallelism.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/parallel/fsdp/replicate.h"
#include "tests/parallel/fsdp/gathered_blocks.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"
#include "tests/support/rounding.h"

namespace cohort::fsdp {
namespace {

using cohort::test::are_rounded_alike;
using cohort::test::error_of;
using Ranks = std::vector<int>;

Options with_dims(const DeviceMesh& mesh, const DataParallelMeshDims& dims) {
  return {.mesh = mesh, .dp_mesh_dims = dims, .one_memory = false};
}

// The gradient that ranks get whose own one is their number.
double mean_gradient(Sharding& sharding, const at::Tensor& weight) {
  at::Tensor loss;
  {
    auto pass = sharding.forward();
    loss = (weight * static_cast<double>(get_rank())).sum();
    pass.outputs({loss});
  }
  loss.backward();
  return sharding.parameters().front().grad().mean().item<double>();
}

double mean_of(const Ranks& ranks) {
  double sum = 0;
  for (const int rank : ranks) sum += rank;
  return sum / static_cast<double>(ranks.size());
}

// `ranks`: whose gradients are averaged.
void require_groups(const Options& options, const Ranks& shards, const Ranks& replicas, const Ranks& ranks) {
  const auto weight = at::ones({8}).requires_grad_();
  Sharding sharding({{"weight", weight}}, options);
  TORCH_CHECK(get_process_group_ranks(sharding.process_group()) == shards);
  TORCH_CHECK((sharding.replica_group() != nullptr) == !replicas.empty());
  if (!replicas.empty()) TORCH_CHECK(get_process_group_ranks(sharding.replica_group()) == replicas);
  TORCH_CHECK(sharding.parameters().front().numel() == 8 / static_cast<int64_t>(shards.size()));
  TORCH_CHECK(mean_gradient(sharding, weight) == mean_of(ranks));
}

COHORT_WORKER(shards_along_named_axes) {
  init_process_group({.backend = cohort::test::backend_of_tests()});
  const int rank = get_rank();
  const auto mesh = init_device_mesh("cpu", {2, 2, 2}, {"a", "b", "c"});
  const int a = rank / 4, b = rank / 2 % 2, c = rank % 2;
  const Ranks all = {0, 1, 2, 3, 4, 5, 6, 7};
  require_groups(with_dims(mesh, {.shard = {"b"}}), {4 * a + c, 4 * a + c + 2}, {}, {4 * a + c, 4 * a + c + 2});
  const Ranks along_a_and_c = {2 * b, 2 * b + 1, 4 + 2 * b, 5 + 2 * b};
  require_groups(with_dims(mesh, {.shard = {"c"}, .replicate = {"a"}}), {4 * a + 2 * b, 4 * a + 2 * b + 1},
                 {2 * b + c, 4 + 2 * b + c}, along_a_and_c);
  require_groups(with_dims(mesh, {.shard = {"a", "c"}}), along_a_and_c, {}, along_a_and_c);
  require_groups(with_dims(mesh, {.shard = {"a"}, .replicate = {"b", "c"}}), {2 * b + c, 4 + 2 * b + c},
                 {4 * a, 4 * a + 1, 4 * a + 2, 4 * a + 3}, all);
  require_groups(with_dims(mesh, {.replicate = {"b"}}), {rank}, {4 * a + c, 4 * a + c + 2}, {4 * a + c, 4 * a + c + 2});
  require_groups(with_dims(mesh, {.replicate = {"a", "c"}}), {rank}, along_a_and_c, along_a_and_c);
  auto options = with_dims(mesh, {.replicate = {"b", "c"}});
  options.mesh = replica_mesh(options);
  options.dp_mesh_dims = {};
  require_groups(options, {rank}, {4 * a, 4 * a + 1, 4 * a + 2, 4 * a + 3}, {4 * a, 4 * a + 1, 4 * a + 2, 4 * a + 3});
  barrier();  // rank 0 has the store
  destroy_process_group();
}

TEST(GatheredMeshes, NamedAxes) {
  cohort::test::run_workers("shards_along_named_axes", {.world_size = 8}).expect_success();
}

COHORT_WORKER(names_wrong_axes) {
  init_process_group({.backend = cohort::test::backend_of_tests()});
  const auto mesh = init_device_mesh("cpu", {1, 2}, {"pp", "dp"});
  const auto error_with = [](const Options& options) {
    return error_of([&] { fully_shard(torch::nn::Linear(4, 2), options); });
  };
  REQUIRE_EQUAL(error_with(with_dims(mesh, {})),
                "At least one of shard or replicate must be set in DataParallelMeshDims");
  REQUIRE_EQUAL(error_with(with_dims(mesh, {.shard = {"tp"}})),
                "Mesh dim name 'tp' not found in mesh.mesh_dim_names ('pp', 'dp')");
  REQUIRE_EQUAL(error_with(with_dims(mesh["dp"], {.shard = {"dp"}, .replicate = {"pp"}})),
                "Mesh dim name 'pp' not found in mesh.mesh_dim_names ('dp',)");
  const std::string no_names = "mesh must have mesh_dim_names when dp_mesh_dims is provided";
  REQUIRE_EQUAL(error_with(with_dims(init_device_mesh("cpu", {1, 2}), {.shard = {"dp"}})), no_names);
  REQUIRE_EQUAL(error_with({.dp_mesh_dims = DataParallelMeshDims{.shard = {"dp"}}}), no_names);
  REQUIRE_EQUAL(error_of([&] { replicate(torch::nn::Linear(4, 2), with_dims(mesh, {.shard = {"dp"}})); }),
                "replicate() with dp_mesh_dims requires replicate-only dims (no shard dims). Use fully_shard() for "
                "sharding.");
  REQUIRE_EQUAL(error_of([&] {
                  replicate(torch::nn::Linear(4, 2), {.dp_mesh_dims = DataParallelMeshDims{.replicate = {"dp"}}});
                }),
                no_names);
  REQUIRE_EQUAL(error_of([&] { replicate(torch::nn::Linear(4, 2), with_dims(mesh, {.replicate = {"dp"}})); }),
                "(no error)");
  REQUIRE_EQUAL(error_of([&] { replicate(torch::nn::Linear(4, 2), {.process_group = mesh["dp"].group()}); }),
                "(no error)");
  REQUIRE_EQUAL(error_of([&] { replicate(torch::nn::Linear(4, 2), {.mesh = init_device_mesh("cpu", {2})}); }),
                "(no error)");
  destroy_process_group();
}

TEST(GatheredMeshes, NamedAxesMessages) { cohort::test::run_workers("names_wrong_axes").expect_success(); }

// A module one of whose parameters, the expert, has a mesh of its own.
struct Experts : torch::nn::Module {
  Experts() {
    expert = register_parameter("expert", test::values_like(at::empty({8, 3}), 1));
    shared = register_parameter("shared", test::values_like(at::empty({3, 3}), 2));
    gate = register_parameter("gate", test::values_like(at::empty({8, 3}), 3));
  }
  at::Tensor forward(at::Tensor x) { return (x.matmul(shared).matmul(expert.t()) * x.matmul(gate.t())).sum(); }
  at::Tensor expert, shared, gate;
};

Options with_expert_mesh(const DeviceMesh& mesh, const DeviceMesh& expert_mesh, bool one_memory) {
  return {.mesh = mesh,
          .shard_placement_fn = [=](const at::Tensor& parameter) -> ShardPlacementResult {
            if (parameter.size(0) != 3) return {Shard(0), expert_mesh};
            return std::nullopt;
          },
          .one_memory = one_memory};
}

at::Tensor input_of(int rank) { return test::values_like(at::empty({2, 3}), 100 + rank); }

std::vector<at::Tensor> mean_gradients(const Ranks& ranks) {
  Experts net;
  for (const int rank : ranks) (net.forward(input_of(rank)) / static_cast<double>(ranks.size())).backward();
  return {net.expert.grad(), net.shared.grad(), net.gate.grad()};
}

void require_part(const at::Tensor& shard, const at::Tensor& whole, const Group& group) {
  const auto chunks = whole.chunk(group->getSize());
  const auto rank = static_cast<size_t>(group->getRank());
  constexpr int64_t kSums = 3 + 3 + 8 + 2 + 4;
  TORCH_CHECK(rank >= chunks.size() ? shard.numel() == 0
                                    : are_rounded_alike(shard, chunks[rank], kSums, cohort::test::largest_of(whole)),
              shard, " is not the part of ", whole);
}

void require_trains(const Options& options, const Ranks& of_expert) {
  auto model = fully_shard(std::make_shared<Experts>(), options);
  TORCH_CHECK(model->shardings().size() == 2);
  const auto& experts = model->shardings()[0]->process_group();
  const auto& all = model->shardings()[1]->process_group();
  TORCH_CHECK(experts->getSize() == 2 && all->getSize() == 4);
  const auto whole_gradients = mean_gradients({0, 1, 2, 3});
  const auto expert_gradients = mean_gradients(of_expert);
  for (int step = 0; step < 2; ++step) {
    for (auto& shard : model->parameters()) shard.mutable_grad().reset();
    model(input_of(get_rank())).backward();
    const auto shards = model->parameters();  // in the module's order
    require_part(shards[0].grad(), expert_gradients[0], experts);
    require_part(shards[1].grad(), whole_gradients[1], all);
    require_part(shards[2].grad(), expert_gradients[2], experts);
  }
  // All switches reach both.
  model->set_gradient_divide_factor(1);
  {
    const auto local = model->no_sync();
    for (const auto& sharding : model->shardings()) TORCH_CHECK(!sharding->settings().requires_gradient_sync);
  }
  for (const auto& sharding : model->shardings()) {
    TORCH_CHECK(sharding->settings().requires_gradient_sync && *sharding->settings().gradient_divide_factor == 1);
  }
  model->unshard().wait();
  TORCH_CHECK(at::allclose(model->module().expert, Experts().expert));
  TORCH_CHECK(at::allclose(model->module().shared, Experts().shared));
  model->reshard();
  std::vector<std::string> written;
  model->write([&](const std::string& name, const at::Tensor& full) {
    written.push_back(name);
    full.fill_(static_cast<double>(name.size()));
  });
  for (const auto& entry : model->named_parameters()) {
    TORCH_CHECK(at::all(entry.value() == static_cast<double>(entry.key().size())).item<bool>(), entry.key());
  }
}

COHORT_WORKER(shards_experts_on_a_mesh_of_their_own) {
  init_process_group({.backend = cohort::test::backend_of_tests()});
  const int outer = get_rank() / 2;
  const auto mesh = init_device_mesh("cpu", {4});
  const auto square = init_device_mesh("cpu", {2, 2}, {"outer", "inner"});
  const bool shares_memory = cohort::test::backend_of_tests() == "shm";
  for (const bool one_memory : {false, true}) {
    if (one_memory && !shares_memory) continue;
    require_trains(with_expert_mesh(mesh, square["inner"], one_memory), {2 * outer, 2 * outer + 1});
    require_trains(with_expert_mesh(mesh, square, one_memory), {0, 1, 2, 3});
  }
  barrier();
  destroy_process_group();
}

TEST(GatheredMeshes, AMeshForSomeParameters) {
  cohort::test::run_workers("shards_experts_on_a_mesh_of_their_own", {.world_size = 4}).expect_success();
}

COHORT_WORKER(gathers_experts_and_others) {
  init_process_group({.backend = cohort::test::backend_of_tests()});
  const auto options = with_expert_mesh(init_device_mesh("cpu", {2}), DeviceMesh::from_group(new_group({0, 1}), "cpu"),
                                        /*one_memory=*/false);
  struct Outer : torch::nn::Module {
    explicit Outer(FullySharded<Experts> inner_one) : inner(std::move(inner_one)) {
      register_module("inner", inner.ptr());
      scale = register_parameter("scale", at::ones({3}));
      expert = register_parameter("expert", at::ones({2}));
    }
    at::Tensor forward(at::Tensor x) { return inner(x * scale) * expert.sum(); }
    FullySharded<Experts> inner;
    at::Tensor scale, expert;
  };
  auto inner = fully_shard(std::make_shared<Experts>(), options);
  auto model = fully_shard(std::make_shared<Outer>(inner), options);
  std::vector<std::string> log;
  const auto watch = [&](ShardedModule& module, const std::string& name) {
    for (size_t i = 0; i < module.shardings().size(); ++i) {
      auto& settings = module.shardings()[i]->settings();
      settings.all_gather = std::make_shared<test::NamedGather>(name + std::to_string(i), &log);
      settings.reduce_scatter = std::make_shared<test::NamedReduce>(name + std::to_string(i), &log);
    }
  };
  watch(*inner, "inner ");
  watch(*model, "root ");
  const auto in_one = [&] {
    std::string text;
    for (const auto& line : std::exchange(log, {})) text += line + ", ";
    return text;
  };
  auto loss = model(input_of(get_rank()));
  REQUIRE_EQUAL(in_one(), "gather root 0, gather root 1, gather inner 0, gather inner 1, ");
  TORCH_CHECK(test::bytes_there(*inner) == 0);
  TORCH_CHECK(test::bytes_there(*model) == 5 * sizeof(float));  // the root's stay, on both meshes
  loss.backward();
  REQUIRE_EQUAL(in_one(),
                "gather inner 0, gather inner 1, reduce inner 1, reduce inner 0, reduce root 0, reduce root 1, ");
  TORCH_CHECK(test::bytes_there(*model) == 0);
  barrier();
  destroy_process_group();
}

TEST(GatheredMeshes, EachMeshIsAGroup) { cohort::test::run_workers("gathers_experts_and_others").expect_success(); }

COHORT_WORKER(gives_meshes_wrongly) {
  init_process_group({.backend = cohort::test::backend_of_tests()});
  const auto mesh = init_device_mesh("cpu", {2});
  const auto other = DeviceMesh::from_group(new_group({0, 1}), "cpu");
  const auto options = with_expert_mesh(mesh, other, /*one_memory=*/false);
  REQUIRE_EQUAL(
      error_of([&] {
        Sharding({{"expert", at::ones({2})}}, options);
      }),
      "[cohort] shard_placement_fn gives parameter 'expert' another mesh than this Sharding has: make one Sharding for "
      "each mesh");
  REQUIRE_EQUAL(error_of([&] { Sharding({{"shared", at::ones({3})}}, options); }), "(no error)");
  REQUIRE_EQUAL(
      error_of([&] {
        fully_shard(torch::nn::Linear(4, 2), with_expert_mesh(mesh, init_device_mesh("cpu", {1, 1, 2}), false));
      }),
      "fully_shard expects a 1D or 2D DeviceMesh but got " + init_device_mesh("cpu", {1, 1, 2}).to_string());
  // The weight has the common mesh on both ranks, the bias on one.
  auto uneven = with_expert_mesh(mesh, other, false);
  uneven.shard_placement_fn = [&](const at::Tensor& parameter) -> ShardPlacementResult {
    if (parameter.dim() == 1 && get_rank() == 1) return {std::nullopt, other};
    return std::nullopt;
  };
  REQUIRE_EQUAL(error_of([&] { fully_shard(torch::nn::Linear(4, 2), uneven); }),
                "[cohort] fully_shard: nothing was sharded, as the ranks differ: the number of meshes is 1 on rank 0, "
                "but 2 on rank 1");
  barrier();
  destroy_process_group();
}

TEST(GatheredMeshes, MeshesOfParametersMessages) { cohort::test::run_workers("gives_meshes_wrongly").expect_success(); }

}  // namespace
}  // namespace cohort::fsdp
