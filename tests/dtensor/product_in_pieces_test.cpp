// Matrix products whose first operand is gathered in pieces: as one process does them, with as many gathers as at once.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/system/env.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/wrapper/comm_counts.h"
#include "tests/dtensor/op_cases.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using test::numbers;
using test::run_workers;

thread_local int64_t products = 0;

// How many products this thread does meanwhile, of parts and of DTensors.
int64_t products_of(const std::function<void()>& what) {
  const auto count = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    const std::string name = function.name();
    products += name == "aten::mm" || name == "aten::addmm" || name == "aten::bmm" || name == "aten::baddbmm";
    return nullptr;
  };
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(count).scopes({at::RecordScope::FUNCTION}));
  const auto before = products;
  what();
  at::removeCallback(handle);
  return products - before;
}

// Of one operation: what it is, this rank's own rows, and of each piece the ranks' before it and after it.
int64_t expected_products(int64_t num_pieces, int64_t num_ranks, int64_t num_positions) {
  if (num_pieces == 1) return 2;
  const int64_t others = (get_rank() % num_ranks > 0) + (get_rank() % num_ranks < num_ranks - 1);
  const int64_t longest = (num_positions + num_ranks - 1) / num_ranks;
  const int64_t of_piece = (longest + num_pieces - 1) / num_pieces;
  return 2 + (longest + of_piece - 1) / of_piece * others;
}

int64_t pieces_wanted() { return base::env_int("COHORT_GATHER_PIECES").value().value_or(1); }

using Product = std::function<at::Tensor(const test::Tensors& operands)>;

// What is multiplied lies as `cuts` say, on `mesh`, whose last axis gathers the first one.
void require_as_in_one_process(const DeviceMesh& mesh, const Product& product, test::Tensors wholes,
                               const std::vector<Placements>& cuts, int64_t num_positions) {
  test::Tensors parts, gradients, expected_gradients;
  for (auto& whole : wholes) whole = whole.detach().requires_grad_();
  for (size_t i = 0; i < wholes.size(); ++i) {
    parts.push_back(DTensor(distribute_tensor(wholes[i].detach(), mesh, cuts[i], std::nullopt)));
    parts.back().requires_grad_();
  }
  const auto expected = product(wholes);
  at::Tensor result;
  const auto before = dtensor::comm_counts();
  const auto num_products = products_of([&] { result = product(parts); });
  const auto counts = dtensor::comm_counts() - before;
  REQUIRE(counts.all_gather == 1 && counts.total() == 1);
  REQUIRE(num_products == expected_products(pieces_wanted(), mesh.size(mesh.ndim() - 1), num_positions));
  REQUIRE(DTensor(result.detach()).placements().back() == Placement(Shard(result.dim() - 1)));
  const auto weights = numbers(expected.sizes(), 9);
  gradients = torch::autograd::grad({(result * weights).sum()}, parts);
  expected_gradients = torch::autograd::grad({(expected * weights).sum()}, wholes);
  REQUIRE(at::allclose(DTensor(result.detach()).full_tensor(), expected, 1e-12, 1e-12));
  for (size_t i = 0; i < parts.size(); ++i) {
    REQUIRE(at::allclose(DTensor(gradients[i]).full_tensor(), expected_gradients[i], 1e-12, 1e-12));
  }
}

constexpr int64_t kIn = 6, kOut = 40;

at::Tensor linear_of(const test::Tensors& of) { return at::linear(of[0], of[1], of.size() > 2 ? of[2] : at::Tensor()); }

DeviceMesh line_mesh() {
  init_process_group(test::backend_of_tests().c_str());
  return init_device_mesh("cpu", {get_world_size()}, {"tp"});
}

COHORT_WORKER(products_in_pieces) {
  const auto mesh = line_mesh();
  const Placements columns{Shard(0)}, all{Replicate()};
  for (const int64_t positions : {1, 5, 8, 11}) {  // some ranks have fewer than others, or none
    const auto x = numbers({3, positions, kIn}, positions), weight = numbers({kOut, kIn}, 1), bias = numbers({kOut}, 2);
    const auto check = [&](const Product& product, const test::Tensors& of, const std::vector<Placements>& cuts) {
      require_as_in_one_process(mesh, product, of, cuts, positions);
    };
    if (positions > 1) {  // a view that joins dimensions forgets the cut of a single element
      check(linear_of, {x, weight, bias}, {{Shard(1)}, columns, columns});
      check(linear_of, {x, weight}, {{Shard(1)}, columns});
      check(linear_of, {x.narrow(0, 0, 1).clone(), weight, bias}, {{Shard(1)}, columns, all});
    }
    if (positions % mesh.size() == 0) {  // and of other chunks than those of the joined one
      require_as_in_one_process(mesh, linear_of, {x.transpose(0, 1).contiguous(), weight, bias},
                                {{Shard(0)}, columns, columns}, 3 * positions);
    }
    check(linear_of, {x[0].clone(), weight, bias}, {{Shard(0)}, columns, columns});
    check([](const auto& of) { return of[0].mm(of[1].t()); }, {x[0].clone(), weight}, {{Shard(0)}, columns});
    const auto matrices = numbers({3, kIn, kOut}, 3);
    check([](const auto& of) { return of[0].bmm(of[1]); }, {x, matrices}, {{Shard(1)}, {Shard(2)}});
    check([](const auto& of) { return at::baddbmm(of[2], of[0], of[1], 0.5, 2); },
          {x, matrices, numbers({3, 1, kOut}, 4)}, {{Shard(1)}, {Shard(2)}, {Shard(2)}});
  }
}

std::string log_with(const char* pieces, int num_ranks) {
  const auto results = run_workers(
      "products_in_pieces",
      {.world_size = num_ranks, .environment = {{"COHORT_GATHER_PIECES", pieces}, {"COHORT_DTENSOR_LOG", "1"}}});
  results.expect_success();
  return results[0].errors;
}

TEST(ProductsInPieces, AreThoseOfOneProcessAndGatherAsOften) {
  for (const int num_ranks : {2, 4}) {
    const auto log = log_with("1", num_ranks);
    EXPECT_NE(log.find("aten::addmm: all_gather over axis \"tp\""), std::string::npos);
    for (const char* pieces : {"2", "3"}) EXPECT_EQ(log_with(pieces, num_ranks), log);
  }
}

// Batches are cut over the other axis.
COHORT_WORKER(products_in_pieces_on_a_plane) {
  init_process_group(test::backend_of_tests().c_str());
  const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  for (const int64_t positions : {3, 6}) {
    require_as_in_one_process(mesh, linear_of,
                              {numbers({4, positions, kIn}), numbers({kOut, kIn}, 1), numbers({kOut}, 2)},
                              {{Shard(0), Shard(1)}, {Replicate(), Shard(0)}, {Replicate(), Shard(0)}}, positions);
  }
}

TEST(ProductsInPieces, OverOneAxisOfAMesh) {
  run_workers("products_in_pieces_on_a_plane", {.world_size = 4, .environment = {{"COHORT_GATHER_PIECES", "2"}}})
      .expect_success();
}

COHORT_WORKER(products_of_one_input) {
  const auto mesh = line_mesh();
  const auto whole = numbers({2, 5, kIn}), weight = numbers({kOut, kIn}, 1);
  const DTensor w = distribute_tensor(weight, mesh, {Shard(0)}, std::nullopt);
  // Query, key and value: the second and the third find what the first has gathered.
  const at::Tensor x = DTensor(distribute_tensor(whole, mesh, {Shard(1)}, std::nullopt)) * 1;
  std::vector<at::Tensor> results;
  const auto before = dtensor::comm_counts();
  const auto num_products = products_of([&] {
    for (int i = 0; i < 3; ++i) results.push_back(at::linear(x, w * (i + 1)));
  });
  REQUIRE((dtensor::comm_counts() - before).all_gather == 1);
  REQUIRE(num_products == expected_products(2, mesh.size(), 5) + 2 * expected_products(1, mesh.size(), 5));
  for (int i = 0; i < 3; ++i) {
    REQUIRE(at::allclose(DTensor(results[i]).full_tensor(), at::linear(whole, weight * (i + 1))));
  }
  // What is transposed comes at once, and serves what is not.
  const at::Tensor columns = DTensor(distribute_tensor(numbers({kIn, 7}, 3), mesh, {Shard(1)}, std::nullopt)) * 1;
  REQUIRE(products_of([&] { results.push_back(columns.t().mm(w.t())); }) == 2);
  REQUIRE(at::allclose(DTensor(results.back()).full_tensor(), numbers({kIn, 7}, 3).t().mm(weight.t())));
  const auto gathers = dtensor::comm_counts().all_gather;
  REQUIRE(at::allclose(DTensor(w.mm(columns)).full_tensor(), weight.mm(numbers({kIn, 7}, 3))));
  REQUIRE(dtensor::comm_counts().all_gather == gathers + 1);  // full_tensor's
  // A summand for each row: at once.
  const DTensor summand = distribute_tensor(numbers({5, kOut}, 4), mesh, {Shard(1)}, std::nullopt);
  const DTensor rows = distribute_tensor(whole[0], mesh, {Shard(0)}, std::nullopt);
  REQUIRE(products_of([&] { results.push_back(at::addmm(summand, rows, w.t())); }) == 2);
  REQUIRE(at::allclose(DTensor(results.back()).full_tensor(), at::addmm(numbers({5, kOut}, 4), whole[0], weight.t())));
}

TEST(ProductsInPieces, ServeOperationsThatFollow) {
  for (const int num_ranks : {2, 4}) {
    run_workers("products_of_one_input", {.world_size = num_ranks, .environment = {{"COHORT_GATHER_PIECES", "2"}}})
        .expect_success();
  }
}

COHORT_WORKER(products_in_pieces_in_lower_precision) {
  const auto mesh = line_mesh();
  const auto whole = numbers({2, 5, kIn}).to(at::kFloat), weight = numbers({kOut, kIn}, 1).to(at::kFloat);
  const DTensor x = distribute_tensor(whole, mesh, {Shard(1)}, std::nullopt);
  const DTensor w = distribute_tensor(weight, mesh, {Shard(0)}, std::nullopt);
  at::Tensor result, expected;
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const auto num_products = products_of([&] { result = at::linear(x, w); });
  expected = at::linear(whole, weight);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  REQUIRE(num_products == expected_products(2, mesh.size(), 5));
  REQUIRE(result.scalar_type() == at::kBFloat16);
  REQUIRE(at::allclose(DTensor(result).full_tensor(), expected, 1e-2, 1e-2));
}

TEST(ProductsInPieces, UnderAutocast) {
  run_workers("products_in_pieces_in_lower_precision", {.environment = {{"COHORT_GATHER_PIECES", "2"}}})
      .expect_success();
}

// A mesh with a group of its own, for which ranks have not decided yet.
DeviceMesh new_line_mesh() { return DeviceMesh::from_group(new_group(), "cpu", {"tp"}); }

COHORT_WORKER(products_decide_together) {
  init_process_group(test::backend_of_tests().c_str());
  const auto num_ranks = get_world_size();
  const auto products_on = [&](const DeviceMesh& mesh) {
    const DTensor x = distribute_tensor(numbers({5, kIn}), mesh, {Shard(0)}, std::nullopt);
    const DTensor w = distribute_tensor(numbers({kOut, kIn}, 1), mesh, {Shard(0)}, std::nullopt);
    return products_of([&] { at::linear(x, w); });
  };
  const auto first = new_line_mesh(), second = new_line_mesh();
  base::set_env("COHORT_GATHER_PIECES", get_rank() == 0 ? "3" : "1");
  REQUIRE(products_on(first) == expected_products(3, num_ranks, 5));
  base::set_env("COHORT_GATHER_PIECES", get_rank() == 0 ? "1" : "3");
  REQUIRE(products_on(first) == expected_products(3, num_ranks, 5));  // decided
  REQUIRE(products_on(second) == 2);
  base::set_env("COHORT_GATHER_PIECES", "0");
  const auto third = new_line_mesh();
  REQUIRE_EQUAL(error_of([&] { products_on(third); }),
                "[cohort] environment variable COHORT_GATHER_PIECES=\"0\" must be from 1 to 2147483647");
}

TEST(ProductsInPieces, AreDecidedByTheFirstRank) { run_workers("products_decide_together").expect_success(); }

}  // namespace
}  // namespace cohort
