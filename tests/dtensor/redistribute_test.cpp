// Every move between placements, with its gradient, on meshes of threads.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>

#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/wrapper/comm_counts.h"
#include "tests/dtensor/op_cases.h"
#include "tests/mesh/thread_mesh.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_rank_threads;
using test::thread_mesh;

std::vector<Placements> ways_of(int64_t num_axes) {
  const Placements choices{Replicate(), Shard(0),       Shard(1),      StridedShard(0, 2),
                           Partial(),   Partial("avg"), Partial("max")};
  std::vector<Placements> ways{{}};
  for (int64_t axis = 0; axis < num_axes; ++axis) {
    std::vector<Placements> longer;
    for (const auto& way : ways) {
      for (const auto& choice : choices) {
        if (!way.empty() && way[0].is_partial() && choice.is_partial() && !(way[0] == choice)) continue;
        longer.push_back(way);
        longer.back().push_back(choice);
      }
    }
    ways = std::move(longer);
  }
  return ways;
}

bool can_become(const Placements& from, const Placements& to) {
  for (size_t axis = 0; axis < to.size(); ++axis) {
    if (to[axis].is_partial() && !(from[axis] == to[axis])) return false;
  }
  return true;
}

void try_move(const at::Tensor& whole, const DeviceMesh& mesh, const Placements& from, const Placements& to) {
  DTensor start(distribute_tensor(whole.clone(), mesh, from, std::nullopt));
  start.set_requires_grad(true);
  const auto moved = start.redistribute(to);
  REQUIRE(moved.placements() == to);
  REQUIRE(DTensor(moved.to_local(), moved.spec()).spec() == moved.spec());  // the part has the shape that it should
  REQUIRE(at::equal(DTensor(moved.detach()).full_tensor(), whole));
  const auto weights = test::numbers(whole.sizes(), 5);
  (DTensor(moved) * weights).sum().backward();
  for (size_t axis = 0; axis < from.size(); ++axis) {  // a summand's gradient is the sum's
    REQUIRE(!from[axis].is_partial() || DTensor(start.grad()).placements()[axis].is_replicate());
  }
  REQUIRE(at::allclose(DTensor(start.grad()).full_tensor(), weights));
}

void try_moves(const std::vector<int64_t>& mesh_shape, const std::vector<int64_t>& shape) {
  int size = 1;
  for (const int64_t ranks : mesh_shape) size *= static_cast<int>(ranks);
  run_rank_threads(size, [&](int, const Group& group) {
    const auto mesh = thread_mesh(group, mesh_shape);
    const auto whole = test::indices(shape, 100).to(at::kDouble);
    for (const auto& from : ways_of(mesh.ndim())) {
      for (const auto& to : ways_of(mesh.ndim())) {
        if (!can_become(from, to)) continue;
        try {
          try_move(whole, mesh, from, to);
        } catch (const std::exception& error) {
          throw std::runtime_error(to_string(from) + " -> " + to_string(to) + ": " + error.what());
        }
      }
    }
  });
}

TEST(DTensorRedistribute, OneAxis) {
  for (const int64_t rows : {1, 4, 5}) try_moves({2}, {rows, 3});
  try_moves({4}, {7, 3});
  try_moves({3}, {0, 2});
}

TEST(DTensorRedistribute, TwoAxes) { try_moves({2, 2}, {5, 3}); }

TEST(DTensorRedistribute, UsesTheCollectiveThatFits) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const auto counts = [&](const Placement& from, const Placement& to) {
      const DTensor start = distribute_tensor(at::ones({4, 4}), mesh, {from}, std::nullopt);
      const auto before = dtensor::comm_counts();
      start.redistribute({to});
      const auto now = dtensor::comm_counts() - before;
      return c10::str(now.all_reduce, now.all_gather, now.reduce_scatter, now.all_to_all);
    };
    REQUIRE_EQUAL(counts(Partial(), Replicate()), "1000");
    REQUIRE_EQUAL(counts(Shard(0), Replicate()), "0100");
    REQUIRE_EQUAL(counts(Partial(), Shard(1)), "0010");
    REQUIRE_EQUAL(counts(Shard(0), Shard(1)), "0001");
    REQUIRE_EQUAL(counts(Replicate(), Shard(1)), "0000");
    REQUIRE_EQUAL(counts(Shard(1), Shard(1)), "0000");
  });
}

TEST(DTensorRedistribute, InAnotherDtype) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    DTensor start(distribute_tensor(at::ones({4}), mesh, {Shard(0)}, std::nullopt));
    start.set_requires_grad(true);
    const auto moved = start.redistribute({Replicate()}, {.forward_dtype = at::kBFloat16, .backward_dtype = {}});
    REQUIRE(moved.scalar_type() == at::kBFloat16 && moved.to_local().scalar_type() == at::kBFloat16);
    moved.sum().backward();
    REQUIRE(start.grad().scalar_type() == at::kFloat);
  });
}

TEST(DTensorRedistribute, GradientsOfGradients) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    DTensor x(distribute_tensor(at::arange(4, at::kDouble), mesh, {Shard(0)}, std::nullopt));
    x.set_requires_grad(true);
    const auto y = x.redistribute({Replicate()}).pow(3).sum();
    const auto first = torch::autograd::grad({y}, {x}, {}, true, true)[0];
    first.sum().backward();
    REQUIRE(at::equal(DTensor(x.grad()).full_tensor(), at::arange(4, at::kDouble) * 6));
  });
}

TEST(DTensorRedistribute, WrongArgumentsMessage) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    const DTensor x = distribute_tensor(at::ones({4}), mesh, {Shard(0)}, std::nullopt);
    REQUIRE_EQUAL(error_of([&] { x.redistribute({Partial()}); }),
                  "Can not redistribute from S(0) to P(sum), redistributing to Partial is for internal use only!");
    REQUIRE_EQUAL(error_of([&] {
                    x.redistribute({Shard(0), Shard(0)});
                  }),
                  "`placements` must have the same length as `device_mesh.ndim`! Found placements length: 2, and "
                  "device_mesh.ndim: 1.");
  });
}

}  // namespace
}  // namespace cohort
