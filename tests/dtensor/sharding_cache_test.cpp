// The sharding propagation cache keeps a limited number of entries, and drops those that have become wrong.
#include "cohort/dtensor/dispatch/sharding_cache.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/comm/group/process_group.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/api/factories.h"
#include "cohort/dtensor/api/sharding_rule.h"
#include "cohort/dtensor/dispatch/rule_table.h"
#include "tests/mesh/thread_mesh.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_rank_threads;
using test::thread_mesh;

COHORT_WORKER(dtensor_asked_once) {
  init_process_group(test::backend_of_tests().c_str());
  const auto mesh = init_device_mesh("cpu", {2});
  static int num_questions = 0;
  register_sharding_rule("aten::renorm", [](const ShardingQuestion& question) {
    ++num_questions;
    // Only small norms: a rule may read numbers.
    if (question.arguments[3].toScalar().toDouble() > 5) return std::vector<ShardingOption>();
    return std::vector<ShardingOption>{{.results = {Shard(0)}, .operands = {Shard(0)}}};
  });
  const auto whole = at::arange(12, at::kFloat).view({4, 3});
  const DTensor x = distribute_tensor(whole, mesh, {Shard(0)}, std::nullopt);
  const auto renorm = [](const DTensor& of, double most) { return DTensor(of.renorm(2, 0, most)); };
  for (int i = 0; i < 3; ++i) {
    REQUIRE(renorm(x, 1.0).placements() == Placements{Shard(0)} && num_questions == 1);
    REQUIRE(at::allclose(renorm(x, 1.0).full_tensor(), whole.renorm(2, 0, 1.0)));
  }
  REQUIRE(renorm(x, 9.0).placements() == Placements{Replicate()} && num_questions == 2);
  REQUIRE(renorm(distribute_tensor(whole, mesh, {Shard(1)}, std::nullopt), 1.0).sizes() == whole.sizes());
  REQUIRE(num_questions == 3);
  REQUIRE(renorm(distribute_tensor(whole.t(), mesh, {Shard(0)}, std::nullopt), 1.0).size(0) == 3 && num_questions == 4);
}

TEST(ShardingCache, AsksRulesOnce) { test::run_workers("dtensor_asked_once").expect_success(); }

TEST(ShardingCache, IsLimited) {
  run_rank_threads(1, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {1});
    const DTensor x = dtensor::ones({3}, mesh, {Shard(0)}, at::kFloat);
    const auto before = dtensor::sharding_cache_size();
    for (int i = 1; i < 100; ++i) x.add(x, 1.0 / i);  // optimizers' numbers change
    REQUIRE(dtensor::sharding_cache_size() == before + 1);
    for (int64_t size = 1; size < 5000; ++size) {
      x.expand({size, 3});
      REQUIRE(dtensor::sharding_cache_size() <= 4096);
    }
    REQUIRE(at::equal(DTensor(x.expand({2, 3})).to_local(), at::ones({2, 3})));
  });
}

TEST(ShardingCache, KeysDifferByWhatMatters) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const DTensor x = distribute_tensor(at::ones({4, 2}), mesh, {Partial()}, std::nullopt);
    const auto mask = at::tensor({1, 0}).to(at::kBool);
    for (int i = 0; i < 2; ++i) {
      REQUIRE(DTensor(x.masked_fill(mask, 0.0)).placements() == Placements{Partial()});
      REQUIRE(DTensor(x.masked_fill(mask, 3.0)).placements() == Placements{Replicate()});
      REQUIRE(at::equal(DTensor(x.masked_fill(mask, 3.0)).full_tensor(), at::ones({4, 2}).masked_fill(mask, 3.0)));
    }
    const auto tall = at::arange(8, at::kFloat).view({4, 2});
    for (const auto& whole : {tall, tall.t().contiguous().t()}) {  // one is not dense
      const DTensor y = distribute_tensor(whole, mesh, {Replicate()}, std::nullopt);
      REQUIRE(DTensor(y.expand({3, 4, 2})).strides() == whole.expand({3, 4, 2}).strides());
    }
  });
}

COHORT_WORKER(dtensor_meshes_of_a_shape) {
  init_process_group(test::backend_of_tests().c_str());
  const auto square = init_device_mesh("cpu", {2, 2}, {"a", "b"});
  const auto whole = at::arange(6, at::kFloat);
  std::vector<DTensor> alive;  // and so what was cached of them
  for (int i = 0; i < 2; ++i) {
    for (const auto& mesh : {square["a"], square["b"]}) {
      const DTensor x = distribute_tensor(whole, mesh, {Shard(0)}, std::nullopt);
      const DTensor y(x * 2);
      REQUIRE(y.device_mesh() == mesh && at::equal(y.full_tensor(), whole * 2));
      alive.push_back(y);
    }
  }
}

TEST(ShardingCache, ResultsLieOnTheOperandsMesh) {
  test::run_workers("dtensor_meshes_of_a_shape", {.world_size = 4}).expect_success();
}

TEST(ShardingCache, EveryOperationIsThere) {
  run_rank_threads(1, [](int, const Group& group) {
    dtensor::zeros({1}, thread_mesh(group, {1}));
    std::string missing;
    for (const auto& name : dtensor::missing_operations()) missing += name + " ";
    REQUIRE_EQUAL(missing, "");
  });
}

}  // namespace
}  // namespace cohort
