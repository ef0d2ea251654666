// Meshes of processes; what they are like in Python, tests/e2e/mesh compares.
#include "cohort/mesh/device_mesh.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <unordered_set>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/subgroups.h"
#include "tests/mesh/thread_mesh.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_rank_threads;
using test::run_workers;
using Numbers = std::vector<int64_t>;

int64_t sum_over(const Group& group, int64_t value) {
  auto tensor = at::full({1}, value, at::kLong);
  all_reduce(tensor, {.group = group});
  return tensor.item<int64_t>();
}

void init() { init_process_group(test::backend_of_tests().c_str()); }

// Along every axis a group sums what the ranks of its line have.
void require_lines(const DeviceMesh& mesh) {
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    auto line = mesh.mesh();
    for (int64_t other = mesh.ndim(); other-- > 0;) {
      if (other != axis) line = line.select(other, mesh.coordinate()->at(other));
    }
    REQUIRE(sum_over(mesh.group(axis), mesh.rank()) == line.sum().item<int64_t>());
    REQUIRE(mesh.local_rank(axis) == mesh.coordinate()->at(axis));
    REQUIRE(mesh.size(axis) == line.numel());
  }
}

COHORT_WORKER(mesh_lines) {
  init();
  const auto shape_text = test::worker_arguments()[0];
  Numbers shape;
  for (const char c : shape_text) shape.push_back(c - '0');
  DeviceMesh::AxisNames names;
  for (size_t axis = 0; axis < shape.size(); ++axis) names.push_back("axis" + std::to_string(axis));
  const auto mesh = init_device_mesh("cpu", shape, names);
  REQUIRE(mesh.shape() == shape && mesh.ndim() == static_cast<int64_t>(shape.size()));
  REQUIRE(at::equal(mesh.mesh(), at::arange(get_world_size(), at::kLong).view(shape)));
  REQUIRE(mesh.rank() == get_rank() && mesh.size() == get_world_size());
  REQUIRE(mesh.groups().size() == shape.size());
  require_lines(mesh);
  for (const auto& name : names) {
    require_lines(mesh[name]);
    REQUIRE(mesh[name].group() == mesh.group(name));
    REQUIRE(mesh[name].group() == mesh[name].group());
  }
  const auto flat = mesh.flatten("all");
  REQUIRE(sum_over(flat.group(), 1) == mesh.size());
  barrier();
}

TEST(DeviceMesh, GroupsOfLines) {
  run_workers("mesh_lines", {.world_size = 1, .arguments = {"1"}}).expect_success();
  run_workers("mesh_lines", {.world_size = 2, .arguments = {"2"}}).expect_success();
  run_workers("mesh_lines", {.world_size = 4, .arguments = {"22"}}).expect_success();
  run_workers("mesh_lines", {.world_size = 6, .arguments = {"32"}}).expect_success();
}

TEST(DeviceMesh, GroupsOfThreeAxes) {
  run_workers("mesh_lines", {.world_size = 8, .arguments = {"222"}}).expect_success();
}

COHORT_WORKER(groups_once) {
  init();
  const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  const int before = get_pg_count();
  REQUIRE(before == 3);  // the default group, a row and a column
  const auto dp = mesh["dp"];
  REQUIRE(dp.group() == mesh.group("dp") && dp.group() == mesh.group(0) && dp.group() == mesh.group(-2));
  REQUIRE(mesh["dp"].group() == dp.group() && mesh.slice({"dp", "tp"}).group("tp") == mesh.group("tp"));
  REQUIRE(get_pg_count() == before);
  // All ranks: the default group itself.
  const auto flat = mesh.flatten();
  REQUIRE(flat.group() == default_group() && get_pg_count() == before);
  REQUIRE(mesh["dp_tp"].group() == default_group() && mesh.group("dp_tp") == default_group());
  REQUIRE(dp.group("dp_tp") == default_group());
  REQUIRE(mesh.flatten("dp_tp") == flat && dp.flatten() == dp);
  REQUIRE(flat["dp_tp"] == flat);
  const auto row = mesh["tp"].flatten("row");
  REQUIRE(get_pg_count() == before + 1 && row.group() != mesh.group("tp"));
  REQUIRE(mesh["tp"].flatten("row").group() == row.group() && get_pg_count() == before + 1);

  const auto three = init_device_mesh("cpu", {4}, {"all"}).unflatten("all", {2, 2}, {"a", "b"});
  REQUIRE(get_pg_count() == before + 3);
  require_lines(three);
  REQUIRE(three == DeviceMesh(three));
  const auto both = DeviceMesh::concatenate({three["a"], three["b"]});
  REQUIRE(both == three && both.group("b") == three.group("b") && get_pg_count() == before + 3);
  barrier();
}

TEST(DeviceMesh, GroupsAreMadeOnce) { run_workers("groups_once", {.world_size = 4}).expect_success(); }

COHORT_WORKER(outside_groups) {
  init();
  const DeviceMesh mesh("cpu", std::vector<Numbers>{{1, 3}, {2, 0}}, {"dp", "tp"});
  const int rank = get_rank();
  if (rank == 4) {
    REQUIRE(!mesh.coordinate() && mesh.groups().empty() && mesh.rank() == 4);
    REQUIRE(mesh.shape() == (Numbers{2, 2}) && mesh.size("tp") == 2 && mesh.mesh()[0][1].item<int64_t>() == 3);
    REQUIRE_EQUAL(error_of([&] { mesh.group("dp"); }),
                  "[cohort] Rank 4 is not in DeviceMesh((dp=2, tp=2), 'cpu', stride=(2, 1)) and has no group of it");
    REQUIRE_EQUAL(error_of([&] { mesh["dp"]; }),
                  "In order to get the mesh Tensor of a DeviceMesh it needs to either have all its original "
                  "dimensions (e.g., no slicing) or it needs to contain the local rank");
    REQUIRE_EQUAL(error_of([&] { mesh.group_order(0); }),
                  "[cohort] Rank 4 is not in DeviceMesh((dp=2, tp=2), 'cpu', stride=(2, 1))");
  } else {
    const Numbers rows{1, 0, 1, 0};
    const Numbers columns{1, 0, 0, 1};
    REQUIRE((*mesh.coordinate() == Numbers{rows[rank], columns[rank]}));
    REQUIRE(sum_over(mesh.group("tp"), rank) == (rows[rank] == 0 ? 4 : 2));
    REQUIRE(sum_over(mesh["dp"].group(), rank * rank) == (columns[rank] == 0 ? 5 : 9));
    // Groups are in the order of ranks, so 0 stands before 2.
    REQUIRE(mesh.group_order("tp") == (rows[rank] == 0 ? Numbers{0, 1} : Numbers{1, 0}));
    REQUIRE(mesh.local_rank("tp") == (rank == 0 || rank == 1 ? 0 : 1));
  }
  barrier();
}

TEST(DeviceMesh, GroupsAndRanksOutside) { run_workers("outside_groups", {.world_size = 5}).expect_success(); }

COHORT_WORKER(mesh_from_environment) {
  REQUIRE(!is_initialized());
  const auto mesh =
      init_device_mesh("cpu", {2}, {"dp"}, {.backend_override = {{"dp", "gloo", std::chrono::seconds(90)}}});
  REQUIRE(is_initialized() && mesh.group() != default_group());
  REQUIRE(get_backend(mesh.group()) == "gloo" && mesh.group()->getGroupDesc() == "mesh_dp");
  REQUIRE(sum_over(mesh.group(), 1) == 2);
  const auto given = DeviceMesh::from_group(mesh.group(), "cpu", {"given"}, at::tensor({0, 1}));
  REQUIRE(given.group() == mesh.group() && given.coordinate() == mesh.coordinate() && !(given == mesh));
  REQUIRE(DeviceMesh::from_group(Group(), "cpu").group() == default_group());
  barrier();
}

TEST(DeviceMesh, CreatesTheDefaultGroup) { run_workers("mesh_from_environment").expect_success(); }

TEST(DeviceMesh, ComparesLikePythons) {
  run_rank_threads(4, [](int, const Group& group) {
    const auto mesh = test::thread_mesh(group, {2, 2});
    const auto same = DeviceMesh::from_group(mesh.groups(), "cpu", mesh.axis_names(), mesh.mesh());
    const auto renamed = DeviceMesh::from_group(mesh.groups(), "cpu", {"a", "b"}, mesh.mesh());
    const auto elsewhere = DeviceMesh::from_group(mesh.groups(), "cuda", mesh.axis_names(), mesh.mesh());
    REQUIRE(mesh == same && mesh.hash() == same.hash());
    REQUIRE(!(mesh == renamed) && !(mesh == elsewhere) && !(mesh == mesh["axis0"]));
    REQUIRE((std::unordered_set<DeviceMesh>{mesh, same, renamed, mesh}.size() == 2));
    REQUIRE_EQUAL(mesh.to_string(), "DeviceMesh((axis0=2, axis1=2), 'cpu', stride=(2, 1))");
    REQUIRE(sum_over(mesh["axis1"].group(), 1) == 2);
    REQUIRE(mesh["axis1"].coordinate() == Numbers{mesh.coordinate()->at(1)});
  });
}

size_t num_mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

COHORT_WORKER(mesh_groups_end) {
  init();
  const auto make = [] { return init_device_mesh("cpu", {2, 2}, {"dp", "tp"}); };
  const int before = get_pg_count();
  { const auto first = make(); }  // what a process needs once
  const size_t mappings = num_mappings();
  for (int i = 0; i < 20; ++i) {
    const auto mesh = make();
    const auto all = mesh.flatten("all");
    REQUIRE(get_pg_count() > before);
    require_lines(mesh);
  }
  REQUIRE(get_pg_count() <= before + 2);  // the last mesh's
  REQUIRE(num_mappings() < mappings + 20);
}

TEST(DeviceMesh, GroupsEndWithTheLastCopy) { run_workers("mesh_groups_end", {.world_size = 4}).expect_success(); }

// The others may not have made them yet, and on some backends cannot any more once one has ended them.
COHORT_WORKER(mesh_groups_wait_for_a_later_one) {
  init();
  const int before = get_pg_count();
  { const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"}); }
  REQUIRE(get_pg_count() == before + 2);
  const auto own = new_group({get_rank()}, {.use_local_synchronization = true});
  const auto other = new_group({get_rank()}, {.use_local_synchronization = true});
  REQUIRE(get_pg_count() == before + 4);
  const auto all = new_group();
  const auto another = new_group();
  REQUIRE(get_pg_count() == before + 4);
}

TEST(DeviceMesh, GroupsWaitForALaterOneOfTheirRanks) {
  run_workers("mesh_groups_wait_for_a_later_one", {.world_size = 4}).expect_success();
}

COHORT_WORKER(mesh_groups_that_others_hold) {
  init();
  const int before = get_pg_count();
  Group held;
  std::optional<DeviceMesh> slice;
  {
    const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const auto other = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    held = mesh.group("tp");
    slice = DeviceMesh::concatenate({mesh["dp"], other["tp"]});
  }
  require_lines(*slice);
  REQUIRE(sum_over(held, get_rank()) == (get_rank() < 2 ? 1 : 5));
  slice.reset();
  REQUIRE(sum_over(held, get_rank()) == (get_rank() < 2 ? 1 : 5));
  const auto all = new_group();
  const auto another = new_group();
  REQUIRE(get_pg_count() == before + 3);
  REQUIRE(get_process_group_ranks(held).size() == 2);
  held.reset();
  const auto last = new_group();
  REQUIRE(get_pg_count() == before + 3);
}

TEST(DeviceMesh, GroupsThatOthersHoldStay) {
  run_workers("mesh_groups_that_others_hold", {.world_size = 4}).expect_success();
}

}  // namespace
}  // namespace cohort
