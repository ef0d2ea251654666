// What wrong arguments say where Python says nothing useful, or nothing at all; the others: tests/e2e/mesh.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/mesh/device_mesh.h"
#include "tests/mesh/thread_mesh.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using Numbers = std::vector<int64_t>;

COHORT_WORKER(mesh_arguments) {
  init_process_group("gloo");
  REQUIRE_EQUAL(error_of([] { DeviceMesh("cpu", Numbers{}); }), "[cohort] A DeviceMesh needs at least one rank");
  REQUIRE_EQUAL(error_of([] {
                  DeviceMesh("cpu", Numbers{0, 0});
                }),
                "[cohort] A rank may stand in a DeviceMesh only once, but rank 0 stands in [0, 0] more often");
  REQUIRE_EQUAL(error_of([] {
                  DeviceMesh("cpu", Numbers{0, 5});
                }),
                "Rank 5 is out of range. Valid ranks are 0 to 1 (world_size=2)");
  REQUIRE_EQUAL(error_of([] {
                  DeviceMesh("cpu", std::vector<Numbers>{{0, 1}, {2}});
                }),
                "expected sequence of length 2 at dim 1 (got 1)");
  REQUIRE_EQUAL(error_of([] {
                  DeviceMesh("cpu", Numbers{0, 1}, {"a", "b"});
                }),
                "mesh_shape and mesh_dim_names should have same length! Found len(mesh_dim_names): 2 and "
                "len(mesh_shape):1.");
  REQUIRE_EQUAL(error_of([] {
                  init_device_mesh("cpu", {2, 0});
                }),
                "[cohort] A DeviceMesh needs at least one rank along each mesh dim, but its shape is (2, 0)");
  const auto plain = init_device_mesh("cpu", {2});
  REQUIRE_EQUAL(error_of([&] { plain.unflatten(0, {2}, {"a"}); }),
                "Cannot unflatten a DeviceMesh without mesh_dim_names!");
  REQUIRE_EQUAL(error_of([] { DeviceMesh::concatenate({}); }),
                "[cohort] Expects at least one DeviceMesh to concatenate");
  // A group of more ranks than the mesh says.
  const auto odd = DeviceMesh::from_group(std::vector<Group>{default_group()}, "cpu", {"a"}, at::tensor({get_rank()}));
  REQUIRE_EQUAL(error_of([&] { odd.group_order(0); }), "[cohort] The group of mesh dim 0 has 2 ranks, but the mesh 1");
  REQUIRE(get_pg_count() == 1);
  barrier();
}

TEST(DeviceMeshErrors, RefusesBadMeshesMessage) { test::run_workers("mesh_arguments").expect_success(); }

TEST(DeviceMeshErrors, GroupsOfOtherSizesMessage) {
  test::run_rank_threads(2, [](int, const Group& group) {
    REQUIRE_EQUAL(error_of([&] { DeviceMesh::from_group(std::vector<Group>{group}, "cpu", {"a"}, at::arange(3)); }),
                  "[cohort] The group of mesh dim 0 has 2 ranks, but the mesh 3");
    REQUIRE_EQUAL(error_of([] { DeviceMesh::from_group(Group(), "cpu"); }),
                  "Default process group has not been initialized, please make sure to call init_process_group.");
  });
}

TEST(DeviceMeshErrors, SlicesHaveTheOrderOfTheMeshMessage) {
  test::run_rank_threads(4, [](int, const Group& group) {
    const auto mesh = test::thread_mesh(group, {2, 2});
    REQUIRE(mesh.slice({"axis0", "axis1"}) == mesh);
    REQUIRE_EQUAL(
        error_of([&] {
          mesh.slice({"axis1", "axis0"});
        }),
        "Invalid mesh_dim_names ('axis1', 'axis0') specified. Mesh dim indices should be in ascending order.");
    for (const std::string name : {"axis0", "axis1"}) {
      REQUIRE_EQUAL(error_of([&] {
                      mesh.slice({name, name});
                    }),
                    "Slicing overlapping dim_names ('" + name + "', '" + name + "') is not allowed.");
    }
    REQUIRE_EQUAL(error_of([&] {
                    mesh.slice({"axis0", "axis2"});
                  }),
                  "Invalid mesh_dim_names ('axis0', 'axis2') specified. Valid mesh_dim_names are ['axis0', 'axis1'].");
  });
}

}  // namespace
}  // namespace cohort
