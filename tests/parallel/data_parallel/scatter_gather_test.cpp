#include "cohort/parallel/data_parallel/scatter_gather.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort::nn::parallel {

namespace {

struct Detection {
  at::Tensor boxes;
  std::vector<at::Tensor> scores;
  std::string label;
};
std::vector<at::Tensor*> cohort_tensor_fields(Detection& detection) {
  std::vector<at::Tensor*> fields{&detection.boxes};
  for (auto& score : detection.scores) fields.push_back(&score);
  return fields;
}

using test::error_of;

Devices cpus(size_t count) { return Devices(count, at::kCPU); }

std::vector<int64_t> lengths(const std::vector<at::Tensor>& parts, int64_t dim = 0) {
  std::vector<int64_t> result;
  for (const auto& part : parts) result.push_back(part.size(dim));
  return result;
}

using Lengths = std::vector<int64_t>;

TEST(ScatterGather, CutsATensorAsPyTorchDoes) {
  const auto x = at::arange(5);
  EXPECT_EQ(lengths(scatter(x, cpus(2))), (Lengths{3, 2}));
  EXPECT_EQ(lengths(scatter(x, cpus(4))), (Lengths{2, 2, 1}));
  EXPECT_EQ(lengths(scatter(at::arange(2), cpus(4))), (Lengths{1, 1}));
  EXPECT_EQ(lengths(scatter(at::empty({0, 3}), cpus(2))), (Lengths{0, 0}));
  EXPECT_EQ(lengths(scatter(at::empty({2, 6}), cpus(3), 1), 1), (Lengths{2, 2, 2}));
  EXPECT_EQ(lengths(scatter(at::empty({2, 6}), cpus(3), -1), 1), (Lengths{2, 2, 2}));
  EXPECT_TRUE(scatter(x, cpus(2))[1].is_alias_of(x)) << "a part on its tensor's own device is a view";
  EXPECT_EQ(scatter(at::Tensor(), cpus(3)).size(), 3);
}

TEST(ScatterGather, ATensorOfNoDimensionMessage) {
  EXPECT_EQ(error_of([] { scatter(at::scalar_tensor(1), cpus(2)); }), "chunk expects at least a 1-dimensional tensor");
}

TEST(ScatterGather, GoesIntoEveryNestingAndCopiesTheRest) {
  const auto x = at::arange(4);
  using Nested =
      std::tuple<int, std::vector<std::map<std::string, at::Tensor>>, std::pair<std::optional<at::Tensor>, std::string>,
                 std::array<at::Tensor, 2>, std::vector<int64_t>, std::optional<at::Tensor>>;
  const Nested value{7, {{{"a", x}, {"b", x * 10}}}, {x + 100, "text"}, {x, -x}, {1, 2, 3}, std::nullopt};
  const auto parts = scatter(value, cpus(2));
  ASSERT_EQ(parts.size(), 2);
  for (size_t k = 0; k < 2; ++k) {
    const auto part = x.chunk(2)[k];
    const auto& [number, maps, pair, array, list, nothing] = parts[k];
    EXPECT_EQ(number, 7);
    EXPECT_TRUE(at::equal(maps[0].at("a"), part));
    EXPECT_TRUE(at::equal(maps[0].at("b"), part * 10));
    EXPECT_TRUE(at::equal(*pair.first, part + 100));
    EXPECT_EQ(pair.second, "text");
    EXPECT_TRUE(at::equal(array[1], -part));
    EXPECT_EQ(list, (std::vector<int64_t>{1, 2, 3}));
    EXPECT_FALSE(nothing);
  }
}

TEST(ScatterGather, TheTensorWithTheFewestPartsDecides) {
  const auto parts = scatter(std::tuple{at::arange(4), at::arange(2), 1}, cpus(4));
  ASSERT_EQ(parts.size(), 2);
  EXPECT_TRUE(at::equal(std::get<0>(parts[1]), at::tensor({1})));
  const auto values = scatter(c10::IValue(c10::ivalue::Tuple::create(at::arange(4), at::arange(2))), cpus(4));
  ASSERT_EQ(values.size(), 2);
  EXPECT_TRUE(at::equal(values[1].toTupleRef().elements()[0].toTensor(), at::tensor({1})));
  EXPECT_EQ(scatter(std::tuple{1, std::string("a")}, cpus(3)).size(), 3);
  EXPECT_EQ(scatter(std::vector<at::Tensor>(), cpus(3)).size(), 3);
}

TEST(ScatterGather, JoinsWhatItCut) {
  const auto x = at::randn({5, 2});
  using Nested = std::tuple<at::Tensor, std::vector<std::map<std::string, at::Tensor>>,
                            std::pair<std::optional<at::Tensor>, std::array<at::Tensor, 2>>, std::optional<at::Tensor>>;
  const Nested value{x, {{{"a", x * 2}}}, {x * 3, {x * 4, at::Tensor()}}, std::nullopt};
  const auto [whole, maps, pair, nothing] = gather(scatter(value, cpus(2)), at::kCPU);
  EXPECT_TRUE(at::equal(whole, x));
  EXPECT_TRUE(at::equal(maps[0].at("a"), x * 2));
  EXPECT_TRUE(at::equal(*pair.first, x * 3));
  EXPECT_TRUE(at::equal(pair.second[0], x * 4));
  EXPECT_FALSE(pair.second[1].defined());
  EXPECT_FALSE(nothing);
  EXPECT_TRUE(at::equal(gather(scatter(x, cpus(2), 1), at::kCPU, 1), x));
}

TEST(ScatterGather, TypesOfTheUsersOwn) {
  const auto x = at::arange(3);
  const auto parts = scatter(Detection{x, {x * 2, x * 3}, "cat"}, cpus(2));
  ASSERT_EQ(parts.size(), 2);
  EXPECT_TRUE(at::equal(parts[1].scores[1], at::tensor({6})));
  EXPECT_EQ(parts[1].label, "cat");
  const auto joined = gather(parts, at::kCPU);
  EXPECT_TRUE(at::equal(joined.scores[0], x * 2));
  EXPECT_EQ(error_of([&] {
              gather(std::vector{parts[0], Detection{x, {}, "dog"}}, at::kCPU);
            }),
            "[cohort] gather: the replicas' results have different lengths, 3 and 1");
}

TEST(ScatterGather, IValues) {
  const auto x = at::arange(4);
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("a", x);
  const auto value = c10::ivalue::Tuple::create(x, c10::List<at::Tensor>({x * 2}), dict, c10::IValue(), 5);
  const auto parts = scatter(c10::IValue(value), cpus(2));
  ASSERT_EQ(parts.size(), 2);
  const auto& elements = parts[1].toTupleRef().elements();
  EXPECT_TRUE(at::equal(elements[1].toTensorList().get(0), at::tensor({4, 6})));
  EXPECT_EQ(elements[4].toInt(), 5);
  EXPECT_EQ(
      error_of([&] { gather(parts, at::kCPU); }),
      "[cohort] gather: values of type Int cannot be joined, only tensors, and lists, tuples and dicts of tensors");
  const auto without_number = [](const c10::IValue& part) {
    const auto& of = part.toTupleRef().elements();
    return c10::IValue(c10::ivalue::Tuple::create(of[0], of[1], of[2], of[3]));
  };
  const auto joined = gather(std::vector{without_number(parts[0]), without_number(parts[1])}, at::kCPU);
  EXPECT_TRUE(at::equal(joined.toTupleRef().elements()[0].toTensor(), x));
  EXPECT_TRUE(at::equal(joined.toTupleRef().elements()[1].toTensorList().get(0), x * 2));
  EXPECT_TRUE(at::equal(joined.toTupleRef().elements()[2].toGenericDict().at("a").toTensor(), x));
  EXPECT_TRUE(joined.toTupleRef().elements()[3].isNone());

  const auto lists = scatter(c10::List<at::Tensor>({x}), cpus(2));
  EXPECT_TRUE(at::equal(lists[1].get(0), at::tensor({2, 3})));
  EXPECT_TRUE(at::equal(gather(lists, at::kCPU).get(0), x));
}

COHORT_WORKER(gathers_scalars) {
  const auto joined = gather(std::vector{at::scalar_tensor(1), at::scalar_tensor(2)}, at::kCPU);
  REQUIRE(at::equal(joined, at::tensor({1.F, 2.F})));
}

// Another process, as the warning comes once in each.
TEST(ScatterGather, ScalarsBecomeAVectorMessage) {
  const auto results = test::run_workers("gathers_scalars", {.world_size = 1});
  results.expect_success();
  EXPECT_EQ(results[0].errors,
            "[cohort] warning: Was asked to gather along dimension 0, but all input tensors were scalars; will instead "
            "unsqueeze and return a vector.\n");
}

TEST(ScatterGather, WhatDoesNotFitMessage) {
  const auto refused = [](const std::vector<at::Tensor>& tensors) {
    return error_of([&] { gather(tensors, at::kCPU); });
  };
  EXPECT_EQ(refused({}), "Expected at least one tensor to gather from");
  EXPECT_EQ(refused({at::ones({2, 3}), at::ones({2})}),
            "Expected all input tensors to have the same number of dimensions, but tensor at index 1 has 1 "
            "dimensions, "
            "(expected 2)");
  EXPECT_EQ(refused({at::ones({2, 3}), at::ones({1, 4})}),
            "Tensor at index 1 has invalid shape: got [1, 4], but expected [1, 3]");
  using Map = std::map<std::string, at::Tensor>;
  for (const auto& text : {error_of([] { gather(std::vector<Map>{}, at::kCPU); }),
                           error_of([] { gather(std::vector<c10::IValue>{}, at::kCPU); }),
                           error_of([] { gather_ivalues({}, at::kCPU, 0); }),
                           error_of([] { gather(std::vector<std::vector<at::Tensor>>{}, at::kCPU); }),
                           error_of([] { gather(std::vector<std::optional<at::Tensor>>{}, at::kCPU); })}) {
    EXPECT_EQ(text, "Expected at least one tensor to gather from");
  }
  const auto x = at::ones({1});
  EXPECT_EQ(error_of([&] {
              gather(std::vector{Map{{"a", x}}, Map{{"a", x}, {"b", x}}}, at::kCPU);
            }),
            "All dicts must have the same number of keys");
  EXPECT_EQ(error_of([&] {
              gather(std::vector{Map{{"a", x}}, Map{{"b", x}}}, at::kCPU);
            }),
            "[cohort] gather: the replicas' dicts differ in keys");
  EXPECT_EQ(error_of([&] {
              gather(std::vector<std::vector<at::Tensor>>{{x}, {x, x}}, at::kCPU);
            }),
            "[cohort] gather: the replicas' lists have different lengths, 1 and 2");
  EXPECT_EQ(error_of([&] {
              gather(std::vector<std::optional<at::Tensor>>{x, std::nullopt}, at::kCPU);
            }),
            "[cohort] gather: some replicas returned no value");
}

TEST(ScatterGather, GradientsReachTheirPlaceInTheWhole) {
  const auto x = at::arange(5, at::kDouble).set_requires_grad(true);
  const auto parts = scatter(x, cpus(2));
  gather(std::vector{parts[0] * 2, parts[1].pow(2)}, at::kCPU).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::tensor({2., 2., 2., 6., 8.})));
}

}  // namespace
}  // namespace cohort::nn::parallel
