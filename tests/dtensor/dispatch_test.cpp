// What DTensors refuse, by full text, and rules that users bring.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/serialize.h>

#include <iostream>
#include <sstream>

#include "cohort/comm/group/process_group.h"
#include "cohort/comm/overrides/override.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/api/sharding_rule.h"
#include "cohort/dtensor/wrapper/comm_counts.h"
#include "cohort/dtensor/wrapper/dispatch_key.h"
#include "tests/mesh/thread_mesh.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_rank_threads;
using test::thread_mesh;

constexpr const char* kNoData =
    "[cohort] DTensor: this tensor is distributed over the ranks of a mesh and has no data of its own, but something "
    "needs a pointer to its data: printing, saving, a kernel or a library that reads memory\n  hint: give it "
    "DTensor(x).to_local(), this rank's shard, or DTensor(x).full_tensor(), which all ranks must call";

std::string no_rule(const std::string& name, const std::string& given) {
  return "[cohort] DTensor: " + name + " has no sharding rule, so it cannot run on distributed tensors (" + given +
         ")\n  hint: give it DTensor(x).full_tensor(), which all ranks must call, or DTensor(x).to_local(), this "
         "rank's shard; or add a rule with cohort::register_sharding_rule(\"" +
         name + "\", ...)";
}

template <class Fn>
void on_two_ranks(Fn fn) {
  run_rank_threads(2, [&](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2});
    fn(mesh, DTensor(distribute_tensor(at::ones({4, 3}), mesh, {Shard(0)}, std::nullopt)));
  });
}

TEST(DTensorErrors, OperationsWithoutARule) {
  on_two_ranks([](const DeviceMesh&, const DTensor& x) {
    const auto before = dtensor::comm_counts();
    const std::string given = "argument 0 has shape [4, 3] and placements (Shard(dim=0),)";
    REQUIRE_EQUAL(error_of([&] { x.erfinv(); }), no_rule("aten::erfinv", given));
    REQUIRE_EQUAL(error_of([&] { x.as_strided({2}, {1}); }), no_rule("aten::as_strided", given));
    // A kernel for all backends, which would make a plain tensor of a wrapper.
    REQUIRE_EQUAL(error_of([&] { at::rot90(x); }), no_rule("aten::rot90", given));
    REQUIRE((dtensor::comm_counts() - before).total() == 0);
  });
}

TEST(DTensorErrors, ThereIsNoData) {
  on_two_ranks([](const DeviceMesh&, const DTensor& x) {
    REQUIRE(error_of([&] { x.data_ptr<float>(); }).find(kNoData) != std::string::npos);
    REQUIRE(error_of([&] { std::ostringstream() << static_cast<const at::Tensor&>(x); }).find(kNoData) !=
            std::string::npos);
    std::ostringstream out;
    const auto saved = error_of([&] { torch::save(static_cast<const at::Tensor&>(x), out); });
    REQUIRE(saved.find("[cohort] DTensor") != std::string::npos);
  });
}

TEST(DTensorErrors, PlainTensorsBeside) {
  on_two_ranks([](const DeviceMesh&, const DTensor& x) {
    const auto plain = at::ones({4, 3});
    REQUIRE(at::equal(DTensor(x + plain).full_tensor(), at::full({4, 3}, 2.f)));
    REQUIRE_EQUAL(
        error_of([&] { plain.add_(x); }),
        "[cohort] DTensor: aten::add_.Tensor would write a DTensor's values into argument 0, a plain tensor "
        "of shape [4, 3]\n  hint: gather it first with x.copy_(DTensor(y).full_tensor()); a gradient is plain here and "
        "a DTensor there if its parameter was distributed after the first backward: clear gradients with zero_grad() "
        "in between");
    const auto leaf = at::ones({4, 3}).requires_grad_();
    REQUIRE_EQUAL(error_of([&] { x* leaf; }),
                  "[cohort] DTensor: argument 1 of aten::mul.Tensor, of shape [4, 3], is a plain tensor that requires "
                  "a gradient, beside "
                  "DTensors: its gradient would become a DTensor\n  hint: distribute it as well: "
                  "cohort::distribute_module(module, mesh) "
                  "makes every parameter a DTensor (also after torch::load, which puts plain ones in), "
                  "DTensor::from_local(x, mesh, "
                  "{Replicate()}) an input");
  });
}

TEST(DTensorErrors, WhatCannotStayInPlace) {
  on_two_ranks([](const DeviceMesh& mesh, const DTensor&) {
    const DTensor x = distribute_tensor(at::ones({4}), mesh, {Partial()}, std::nullopt);
    REQUIRE_EQUAL(
        error_of([&] { x.exp_(); }),
        "[cohort] DTensor: aten::exp_ works in place on a tensor of shape [4] that is Partial(sum) on axis 0 of its "
        "mesh, and needs it in other placements\n  hint: use the form that returns a new tensor, or "
        "DTensor(x).redistribute({Replicate()}) before");
  });
}

TEST(DTensorErrors, MeshesThatDiffer) {
  run_rank_threads(4, [](int, const Group& group) {
    const auto line = thread_mesh(group, {4});
    const auto square = thread_mesh(group, {2, 2});
    const DTensor a = distribute_tensor(at::ones({4}), line, {Shard(0)}, std::nullopt);
    const DTensor b = distribute_tensor(at::ones({4}), square, {Shard(0), Shard(0)}, std::nullopt);
    REQUIRE_EQUAL(
        error_of([&] { a + b; }),
        "[cohort] DTensor: aten::add.Tensor has arguments on different meshes, " + line.to_string() + " and " +
            square.to_string() +
            "\n  hint: bring them onto one mesh: distribute_tensor(DTensor(x).full_tensor(), mesh, placements)");
  });
}

COHORT_WORKER(dtensor_taken_key) {
  torch::Library library(torch::Library::IMPL, "aten", dtensor::kKey, __FILE__, __LINE__);
  library.impl("neg", torch::CppFunction::makeFallthrough());
  std::cout << error_of([] { comm::take_key("DTensor", dtensor::kKey); }) << "\n";
}

TEST(DTensorErrors, TheKeyIsTaken) {
  const auto results = test::run_workers("dtensor_taken_key", {.world_size = 1});
  results.expect_success();
  EXPECT_THAT(results[0].output,
              testing::HasSubstr(
                  "[cohort] DTensor: LibTorch's dispatch key CustomRNGKeyId, which DTensor needs for itself, is in "
                  "use in this process: operator aten::neg has a kernel for it (LibTorch "));
  EXPECT_THAT(results[0].output, testing::HasSubstr("hint: DTensor is off here; everything else works."));
}

// Rows must be whole, columns may be shared out.
std::vector<ShardingOption> columns(const ShardingQuestion& question) {
  EXPECT_EQ(question.shapes.size(), 1u);
  EXPECT_EQ(question.arguments.at(1).toInt(), 0);
  return {{.results = {Shard(1)}, .operands = {Shard(1)}}};
}

COHORT_WORKER(dtensor_user_rules) {
  init_process_group(test::backend_of_tests().c_str());
  const auto mesh = init_device_mesh("cpu", {2});
  register_sharding_rule("aten::cumprod", columns);
  const auto whole = at::arange(12, at::kFloat).view({3, 4});
  const DTensor x = distribute_tensor(whole, mesh, {Shard(1)}, std::nullopt);
  const auto before = dtensor::comm_counts();
  const DTensor y(x.cumprod(0));
  REQUIRE(y.placements() == Placements{Shard(1)} && (dtensor::comm_counts() - before).total() == 0);
  REQUIRE(y.sizes() == whole.sizes() && at::equal(y.full_tensor(), whole.cumprod(0)));
  register_sharding_rule("aten::cumprod", [](const ShardingQuestion&) {
    return std::vector<ShardingOption>{{.results = {}, .operands = {Shard(1)}}};
  });
  REQUIRE_EQUAL(
      error_of([&] { x.cumprod(0); }),
      "[cohort] the sharding rule of aten::cumprod names 1 tensors and 0 results, but the call has 1 and 1\n  hint: "
      "give an option one placement for each defined tensor among the arguments, and one for each result");
  REQUIRE_EQUAL(error_of([] { register_sharding_rule("aten::cumprodd", columns); }),
                "[cohort] register_sharding_rule: LibTorch knows no operation \"aten::cumprodd\"\n  hint: give the "
                "schema's name, with the overload after a dot: \"aten::add.Tensor\"");
}

// Rows by number, of a table of which each rank has some columns.
COHORT_WORKER(dtensor_rule_of_index) {
  init_process_group(test::backend_of_tests().c_str());
  const auto mesh = init_device_mesh("cpu", {2});
  register_sharding_rule("aten::index.Tensor", [](const ShardingQuestion& question) {
    if (question.arguments[1].toListRef()[0].isNone()) return std::vector<ShardingOption>();
    return std::vector<ShardingOption>{{.results = {Shard(1)}, .operands = {Shard(1), Replicate()}}};
  });
  using Indices = c10::List<std::optional<at::Tensor>>;
  const auto whole = at::arange(12, at::kFloat).view({3, 4}), rows = at::tensor({2, 0}, at::kLong);
  const DTensor x = distribute_tensor(whole, mesh, {Shard(1)}, std::nullopt);
  const DTensor on_mesh = distribute_tensor(rows, mesh, {Replicate()}, std::nullopt);
  for (const at::Tensor& index : {rows, static_cast<at::Tensor>(on_mesh)}) {
    const DTensor y(at::index(x, Indices({index})));
    REQUIRE(y.placements() == Placements{Shard(1)} && at::equal(y.full_tensor(), whole.index({rows})));
  }
  const DTensor columns(at::index(x, Indices({std::nullopt, on_mesh})));
  REQUIRE(at::equal(columns.full_tensor(), at::index(whole, Indices({std::nullopt, rows}))));
}

TEST(DTensorRules, OfListsInWhichTensorsMayBeAbsent) { test::run_workers("dtensor_rule_of_index").expect_success(); }

TEST(DTensorRules, OfUsers) { test::run_workers("dtensor_user_rules").expect_success(); }

COHORT_WORKER(dtensor_log) {
  init_process_group(test::backend_of_tests().c_str());
  const auto mesh = init_device_mesh("cpu", {2}, {"tp"});
  const DTensor x = distribute_tensor(at::ones({4, 4}), mesh, {Partial()}, std::nullopt);
  x.relu();
  x.redistribute({Shard(0)});
}

TEST(DTensorLog, SaysWhichOperationCausedWhat) {
  const auto results = test::run_workers("dtensor_log", {.environment = {{"COHORT_DTENSOR_LOG", "1"}}});
  results.expect_success();
  EXPECT_THAT(
      results[0].errors,
      testing::HasSubstr("[cohort] dtensor: aten::relu: all_reduce over axis \"tp\" of 2 ranks: Partial(sum) -> "
                         "Replicate(), 64 bytes\n"
                         "[cohort] dtensor: redistribute: reduce_scatter over axis \"tp\" of 2 ranks: Partial(sum) -> "
                         "Shard(dim=0), 64 bytes\n"));
  EXPECT_THAT(results[1].errors, testing::Not(testing::HasSubstr("dtensor:")));
}

}  // namespace
}  // namespace cohort
