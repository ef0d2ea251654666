// Elements by number or by mask; borders, repetitions and diagonals.
#include <ATen/ATen.h>

#include "tests/dtensor/op_cases.h"

namespace cohort::test {
namespace {

using OfOne = Tensors (*)(const at::Tensor&);
using OfTwo = Tensors (*)(const at::Tensor&, const at::Tensor&);

OpCase one(const std::string& name, OfOne run, at::Tensor input = numbers({5, 3, 4})) {
  return {name, {std::move(input)}, [run](const Tensors& in) { return run(in[0]); }};
}

OpCase two(const std::string& name, OfTwo run, at::Tensor second, at::Tensor first = numbers({5, 3, 4})) {
  return {name, {std::move(first), std::move(second)}, [run](const Tensors& in) { return run(in[0], in[1]); }};
}

at::Tensor at_all(const at::Tensor& x, std::vector<std::optional<at::Tensor>> where) {
  c10::List<std::optional<at::Tensor>> list;
  for (auto& each : where) list.push_back(std::move(each));
  return at::index(x, list);
}

at::Tensor put_at(const at::Tensor& x, std::vector<std::optional<at::Tensor>> where, const at::Tensor& values,
                  bool adds) {
  c10::List<std::optional<at::Tensor>> list;
  for (auto& each : where) list.push_back(std::move(each));
  return at::index_put(x, list, values, adds);
}

}  // namespace

std::vector<OpCase> index_cases() {
  using T = const at::Tensor&;
  const auto some = indices({6}, 3);
  return {
      two(
          "index rows", [](T x, T i) -> Tensors { return {at_all(x, {i})}; }, some),
      two(
          "index columns",
          [](T x, T i) -> Tensors {
            return {at_all(x, {std::nullopt, i})};
          },
          some),
      two(
          "index by a matrix",
          [](T x, T i) -> Tensors {
            return {at_all(x, {std::nullopt, i})};
          },
          indices({2, 3}, 3)),
      two(
          "index both",
          [](T x, T i) -> Tensors {
            return {at_all(x, {i, i})};
          },
          some),
      two(
          "index apart",
          [](T x, T i) -> Tensors {
            return {at_all(x, {i, std::nullopt, i})};
          },
          some),
      two(
          "index by a mask", [](T x, T m) -> Tensors { return {at_all(x, {m})}; }, numbers({5}, 2).gt(0)),
      two(
          "index by a mask of two",
          [](T x, T m) -> Tensors {
            return {at_all(x, {std::nullopt, m})};
          },
          numbers({3, 4}, 2).gt(0)),
      two(
          "index_put",
          [](T x, T i) -> Tensors {
            return {put_at(x, {std::nullopt, i}, numbers({2, 4}, 5), false)};
          },
          at::tensor({2, 0}, at::kLong)),
      {"index_put of values",
       {numbers({5, 3, 4}), at::tensor({2, 0}, at::kLong), numbers({5, 2, 1}, 5)},
       [](const Tensors& in) {
         return Tensors{put_at(in[0], {std::nullopt, in[1]}, in[2], false)};
       }},
      {"index_put that adds",
       {numbers({5, 3, 4}), indices({6}, 5), numbers({6, 3, 4}, 5)},
       [](const Tensors& in) { return Tensors{put_at(in[0], {in[1]}, in[2], true)}; }},
      two(
          "masked_select", [](T x, T m) -> Tensors { return {x.masked_select(m)}; }, numbers({3, 4}, 2).gt(0)),
      two(
          "index_select rows", [](T x, T i) -> Tensors { return {x.index_select(0, i)}; }, indices({7}, 5)),
      two(
          "index_select columns", [](T x, T i) -> Tensors { return {x.index_select(-1, i)}; }, indices({3}, 4)),
      {"index_add",
       {numbers({5, 3, 4}), indices({6}, 5), numbers({6, 3, 4}, 5)},
       [](const Tensors& in) { return Tensors{in[0].index_add(0, in[1], in[2], 2)}; }},
      {"index_copy",
       {numbers({5, 3, 4}), at::tensor({3, 1}, at::kLong), numbers({5, 3, 2}, 5)},
       [](const Tensors& in) { return Tensors{in[0].index_copy(2, in[1], in[2])}; }},
      two(
          "index_fill", [](T x, T i) -> Tensors { return {x.index_fill(1, i, 7)}; }, at::tensor({2, 0}, at::kLong)),
      two(
          "scatter of a number", [](T x, T i) -> Tensors { return {x.scatter(1, i, 3.5)}; }, indices({5, 2, 4}, 3)),
  };
}

std::vector<OpCase> border_cases() {
  using T = const at::Tensor&;
  return {
      one("roll",
          [](T x) -> Tensors {
            return {x.roll(2, 0), x.roll({1, -1}, {1, 2}), x.roll(3)};
          }),
      one("pad",
          [](T x) -> Tensors {
            return {at::pad(x, {1, 2}), at::pad(x, {0, 0, 2, 1}, "constant", 1.5), at::pad(x, {-1, 0})};
          }),
      one("pad with what is there",
          [](T x) -> Tensors {
            return {at::pad(x, {1, 2}, "reflect"), at::pad(x, {2, 1}, "replicate")};
          }),
      one("repeat",
          [](T x) -> Tensors {
            return {x.repeat({1, 2, 1}), x.repeat({2, 1, 1, 3}), at::tile(x, {2})};
          }),
      one("glu",
          [](T x) -> Tensors {
            return {at::glu(x), at::glu(x.transpose(0, 2), 0)};
          }),
      one("diagonal",
          [](T x) -> Tensors {
            return {x.diagonal(), x.diagonal(1, 2, 0), x.diagonal(-1, 1, -1)};
          }),
      one("aminmax",
          [](T x) -> Tensors {
            const auto [least, greatest] = at::aminmax(x);
            const auto [low, high] = at::aminmax(x, 1, true);
            return {least, greatest, low, high};
          }),
      one(
          "one_hot",
          [](T x) -> Tensors {
            return {at::one_hot(x), at::one_hot(x, 9)};
          },
          indices({5, 3}, 6)),
  };
}

}  // namespace cohort::test
