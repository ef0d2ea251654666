#include "cohort/parallel/tensor/rng_scope.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/comm/collectives/collectives.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::run_workers;

// What each rank has.
std::vector<at::Tensor> everyones(const at::Tensor& own) {
  std::vector<at::Tensor> all(get_world_size());
  for (auto& each : all) each = at::empty_like(own);
  all_gather(all, own);
  return all;
}

at::Tensor drawn_in_scope(parallel::RngStreams draws, int64_t how_many = 8) {
  const parallel::RngScope scope(draws);
  return at::rand({how_many});
}

COHORT_WORKER(draws_in_scopes) {
  init_process_group({.backend = test::backend_of_tests()});
  at::manual_seed(5);
  const auto differing = drawn_in_scope(parallel::RngStreams::kDifferent);
  const auto after = at::rand({4});
  const auto all = everyones(differing), all_after = everyones(after);
  for (size_t i = 1; i < all.size(); ++i) {
    REQUIRE(!at::equal(all[i], all[0]));
    REQUIRE(at::equal(all_after[i], all_after[0]));
  }
  at::manual_seed(5);  // a run is repeated by its seed, and what follows does not depend on how many numbers were drawn
  REQUIRE(at::equal(drawn_in_scope(parallel::RngStreams::kDifferent), differing));
  REQUIRE(at::equal(at::rand({4}), after));
  at::manual_seed(5);
  drawn_in_scope(parallel::RngStreams::kDifferent, 1000);
  REQUIRE(at::equal(at::rand({4}), after));
  REQUIRE(!at::equal(drawn_in_scope(parallel::RngStreams::kDifferent), differing));

  at::manual_seed(7 + get_rank());
  const auto alike = everyones(drawn_in_scope(parallel::RngStreams::kSame)),
             again = everyones(drawn_in_scope(parallel::RngStreams::kSame));
  const auto own_again = everyones(at::rand({4}));
  for (size_t i = 1; i < alike.size(); ++i) {
    REQUIRE(at::equal(alike[i], alike[0]) && at::equal(again[i], again[0]));
    REQUIRE(!at::equal(own_again[i], own_again[0]));
  }
  REQUIRE(!at::equal(alike[0], again[0]));
  destroy_process_group();
}

TEST(RngScope, DrawsAreEqualOrDiffer) {
  for (const int n : {2, 4}) run_workers("draws_in_scopes", {.world_size = n}).expect_success();
}

TEST(RngScope, WorksWithoutGroups) {
  at::manual_seed(5);
  const auto first = drawn_in_scope(parallel::RngStreams::kDifferent);
  at::manual_seed(5);
  EXPECT_TRUE(at::equal(drawn_in_scope(parallel::RngStreams::kDifferent), first));
  EXPECT_FALSE(at::equal(drawn_in_scope(parallel::RngStreams::kSame), first));
}

}  // namespace
}  // namespace cohort
