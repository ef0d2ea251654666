#include "tests/dtensor/op_cases.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

namespace cohort::test {
namespace {

int64_t count_of(c10::IntArrayRef sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

using One = at::Tensor (*)(const at::Tensor&);
using Two = at::Tensor (*)(const at::Tensor&, const at::Tensor&);

OpCase unary(const std::string& name, One run, at::Tensor input = numbers({5, 3})) {
  return {name, {std::move(input)}, [run](const Tensors& in) { return Tensors{run(in[0])}; }};
}

OpCase binary(const std::string& name, Two run, at::Tensor first = numbers({5, 3}),
              at::Tensor second = positive({5, 3}, 1)) {
  return {name, {std::move(first), std::move(second)}, [run](const Tensors& in) { return Tensors{run(in[0], in[1])}; }};
}

}  // namespace

at::Tensor numbers(c10::IntArrayRef sizes, int64_t seed) {
  const auto index = at::arange(count_of(sizes), at::kDouble) + 31 * seed;
  return ((index * 12.9898).sin() * 43758.5453).frac().mul(2).view(sizes);
}

at::Tensor positive(c10::IntArrayRef sizes, int64_t seed) { return numbers(sizes, seed).abs() + 0.5; }

at::Tensor with_zeros(c10::IntArrayRef sizes, int64_t count) {
  auto result = positive(sizes);
  result.view(-1).slice(0, 1, 1 + 3 * count, 3).zero_();
  return result;
}

at::Tensor indices(c10::IntArrayRef sizes, int64_t end, int64_t seed) {
  return (numbers(sizes, seed).abs() * 1000).to(at::kLong).remainder(end);
}

std::vector<OpCase> pointwise_cases() {
  using T = const at::Tensor&;
  return {
      unary("neg", [](T x) { return -x; }),
      unary("add number", [](T x) { return x + 2.5; }),
      unary("number minus", [](T x) { return 2.5 - x; }),
      unary("mul number", [](T x) { return x * 3; }),
      unary("div number", [](T x) { return x / 3; }),
      unary("pow", [](T x) { return x.pow(2); }),
      unary("exp", [](T x) { return x.exp(); }),
      unary(
          "log", [](T x) { return x.log(); }, positive({5, 3})),
      unary(
          "sqrt", [](T x) { return x.sqrt(); }, positive({5, 3})),
      unary(
          "rsqrt", [](T x) { return x.rsqrt(); }, positive({5, 3})),
      unary(
          "reciprocal", [](T x) { return x.reciprocal(); }, positive({5, 3})),
      unary("abs", [](T x) { return x.abs(); }),
      unary("sigmoid", [](T x) { return x.sigmoid(); }),
      unary("tanh", [](T x) { return x.tanh(); }),
      unary("relu", [](T x) { return x.relu(); }),
      unary("gelu", [](T x) { return at::gelu(x); }),
      unary("gelu tanh", [](T x) { return at::gelu(x, "tanh"); }),
      unary("silu", [](T x) { return at::silu(x); }),
      unary("elu", [](T x) { return at::elu(x); }),
      unary("leaky_relu", [](T x) { return at::leaky_relu(x, 0.1); }),
      unary("hardtanh", [](T x) { return at::hardtanh(x); }),
      unary("hardswish", [](T x) { return at::hardswish(x); }),
      unary("hardsigmoid", [](T x) { return at::hardsigmoid(x); }),
      unary("mish", [](T x) { return at::mish(x); }),
      unary("softplus", [](T x) { return at::softplus(x); }),
      unary("log_sigmoid", [](T x) { return at::log_sigmoid(x); }),
      unary("clamp", [](T x) { return x.clamp(-1, 1); }),
      unary("clamp_min", [](T x) { return x.clamp_min(0.1); }),
      unary("sin cos", [](T x) { return x.sin() * x.cos(); }),
      unary("erf", [](T x) { return x.erf(); }),
      unary("round", [](T x) { return x.round() + x.floor() + x.ceil() + x.trunc(); }),
      unary("sign", [](T x) { return x.sign(); }),
      unary("masks", [](T x) { return x.gt(0).logical_and(x.lt(1)).logical_or(x.isnan()).logical_not(); }),
      unary("masked_fill", [](T x) { return x.masked_fill(x > 0.5, -1.0); }),
      unary("dtype", [](T x) { return x.to(at::kFloat).to(at::kDouble); }),
      unary("clone", [](T x) { return x.clone(); }),
      unary("contiguous", [](T x) { return x.t().contiguous(); }),
      binary("add", [](T x, T y) { return x.add(y, 2); }),
      binary("sub", [](T x, T y) { return x - y; }),
      binary("mul", [](T x, T y) { return x * y; }),
      binary("div", [](T x, T y) { return x / y; }),
      binary(
          "pow of tensors", [](T x, T y) { return x.pow(y); }, positive({5, 3})),
      binary("minimum", [](T x, T y) { return at::minimum(x, y); }),
      binary("maximum", [](T x, T y) { return at::maximum(x, y); }),
      binary("where", [](T x, T y) { return at::where(x > y, x, y); }),
      binary("compare", [](T x, T y) { return x.eq(y).logical_or(x.ne(y)).logical_and(x.le(y)).logical_xor(x.ge(y)); }),
      binary("lerp", [](T x, T y) { return x.lerp(y, 0.3); }),
      binary("addcmul", [](T x, T y) { return x.addcmul(x, y, 0.5); }),
      binary("addcdiv", [](T x, T y) { return x.addcdiv(x, y, 0.5); }),
      binary(
          "add row", [](T x, T y) { return x + y; }, numbers({5, 3}), numbers({3}, 1)),
      binary(
          "mul column", [](T x, T y) { return x * y; }, numbers({5, 3}), numbers({5, 1}, 1)),
      binary(
          "sub scalar tensor", [](T x, T y) { return x - y; }, numbers({5, 3}), numbers({}, 1)),
      binary(
          "outer", [](T x, T y) { return x * y; }, numbers({5, 1}), numbers({1, 3}, 1)),
      binary(
          "larger second", [](T x, T y) { return x + y; }, numbers({3}), numbers({2, 5, 3}, 1)),
  };
}

std::vector<OpCase> rare_pointwise_cases() {
  using T = const at::Tensor&;
  const auto whole_numbers = [] { return indices({5, 3}, 7); };
  return {
      unary("exp2", [](T x) { return x.exp2() + x.expm1(); }),
      unary(
          "logs", [](T x) { return x.log2() + x.log10() + x.log1p(); }, positive({5, 3})),
      unary("tan", [](T x) { return x.tan() + x.atan() + x.frac(); }),
      unary("square", [](T x) { return x.square() - x.sgn(); }),
      unary("power of a number", [](T x) { return at::pow(2.0, x); }),
      unary("threshold", [](T x) { return at::threshold(x, 0.1, 3); }),
      unary("clamp_max", [](T x) { return x.clamp_max(0.1); }),
      unary("nan_to_num", [](T x) { return (x.detach() / x.detach().relu()).nan_to_num(2.0, 3.0, 4.0); }),
      unary("isinf", [](T x) { return (1 / x.detach().relu()).isinf(); }),
      unary("div floor", [](T x) { return x.div(0.3, "floor") + x.div(0.3, "trunc"); }),
      unary("remainder number", [](T x) { return x.remainder(0.3) + x.fmod(0.3); }),
      unary("floor_divide number", [](T x) { return x.detach().floor_divide(0.3); }),
      {"bitwise",
       {whole_numbers(), whole_numbers() + 2},
       [](const Tensors& in) {
         return Tensors{in[0].bitwise_not(),      in[0].bitwise_and(in[1]), in[0].bitwise_or(in[1]),
                        in[0].bitwise_xor(in[1]), in[0].bitwise_and(3),     in[0].bitwise_or(8)};
       }},
      binary("div floor of tensors", [](T x, T y) { return x.div(y, "floor"); }),
      binary("remainder", [](T x, T y) { return x.remainder(y) + x.fmod(y); }),
      binary("floor_divide", [](T x, T y) { return x.detach().floor_divide(y.detach()); }),
      binary("fmin", [](T x, T y) { return at::fmin(x, y) + at::fmax(x, 2 * y); }),
      binary(
          "xlogy", [](T x, T y) { return at::xlogy(x, y); }, positive({5, 3})),
      binary("heaviside", [](T x, T y) { return at::heaviside(x.detach().relu(), y.detach()); }),
      binary("lerp of tensors", [](T x, T y) { return x.lerp(y, y.sigmoid()); }),
      binary("clamp by tensors", [](T x, T y) { return x.clamp(-y, y) + x.clamp_min(y) + x.clamp_max(y); }),
      binary("masked_fill by tensor", [](T x, T y) { return x.masked_fill(y > 1, y.detach().sum()); }),
  };
}

std::vector<OpCase> in_place_cases() {
  using T = const at::Tensor&;
  const auto in_place = [](const std::string& name, Two change) {
    return OpCase{name,
                  {numbers({5, 3}), positive({5, 3}, 1)},
                  [change](const Tensors& in) {
                    auto copy = in[0].clone();
                    change(copy, in[1]);
                    return Tensors{copy};
                  },
                  /*is_in_place=*/true};
  };
  const auto whole_in_place = [](const std::string& name, Two change) {  // nothing that is written is Partial
    return OpCase{name, {numbers({5, 3}), positive({5, 3}, 1)}, [change](const Tensors& in) {
                    auto copy = in[0].abs();
                    change(copy, in[1]);
                    return Tensors{copy};
                  }};
  };
  return {
      in_place("mul_", [](T x, T y) { return x.mul_(y); }),
      whole_in_place("mul_ of what is whole", [](T x, T y) { return x.mul_(y); }),
      whole_in_place("mul_ by one sum", [](T x, T y) { return x.mul_(y.sum()); }),
      in_place("add_ number", [](T x, T) { return x.add_(2.0).sub_(0.5); }),
      in_place("div_", [](T x, T y) { return x.div_(y); }),
      in_place("masked_fill_ with zero", [](T x, T y) { return x.masked_fill_(y > 1, 0.0); }),
      whole_in_place("masked_fill_", [](T x, T y) { return x.masked_fill_(y > 1, 2.0); }),
      whole_in_place("addcmul_", [](T x, T y) { return x.addcmul_(y, y, 0.5); }),
      whole_in_place("lerp_", [](T x, T y) { return x.lerp_(y, 0.3); }),
      whole_in_place("pow_", [](T x, T y) { return x.pow_(y); }),
      whole_in_place("clamp_", [](T x, T) { return x.clamp_(0.5, 1.0); }),
      in_place("add_", [](T x, T y) { return x.add_(y); }),
      in_place("sub_", [](T x, T y) { return x.sub_(y, 0.5); }),
      in_place("mul_ number", [](T x, T) { return x.mul_(2.0); }),
      in_place("div_ number", [](T x, T) { return x.div_(2.0); }),
      in_place("zero_", [](T x, T) { return x.zero_(); }),
      in_place("fill_", [](T x, T) { return x.fill_(3.0); }),
      in_place("copy_", [](T x, T y) { return x.copy_(y); }),
      in_place("through a view",
               [](T x, T y) {
                 const at::NoGradGuard no_grad;
                 return x.t().add_(y.t());
               }),
  };
}

std::vector<OpCase> view_cases() {
  using T = const at::Tensor&;
  const auto x = [] { return numbers({4, 6, 3}); };
  return {
      unary("t", [](T a) { return a.t(); }),
      unary(
          "transpose", [](T a) { return a.transpose(0, -1); }, x()),
      unary(
          "permute",
          [](T a) {
            return a.permute({2, 0, 1});
          },
          x()),
      unary(
          "join first",
          [](T a) {
            return a.view({24, 3});
          },
          x()),
      unary(
          "join last",
          [](T a) {
            return a.view({4, 18});
          },
          x()),
      unary(
          "join all", [](T a) { return a.view(-1); }, x()),
      unary(
          "split first",
          [](T a) {
            return a.view({2, 2, 6, 3});
          },
          x()),
      unary(
          "split second",
          [](T a) {
            return a.view({4, 3, 2, 3});
          },
          x()),
      unary(
          "regroup",
          [](T a) {
            return a.view({8, 9});
          },
          x()),
      unary(
          "odd sizes",
          [](T a) {
            return a.view({35, 3}).view({5, 7, 3});
          },
          numbers({5, 7, 3})),
      unary(
          "joined and split",
          [](T a) {
            return (a.view({24, 3}) * 2).view({4, 6, 3});
          },
          x()),
      unary(
          "reshape of a transpose",
          [](T a) {
            return a.transpose(0, 1).reshape({6, 12});
          },
          x()),
  };
}

std::vector<OpCase> part_cases() {
  using T = const at::Tensor&;
  const auto x = [] { return numbers({4, 6, 3}); };
  return {
      unary("expand",
            [](T a) {
              return a.expand({2, 5, 3});
            }),
      unary(
          "expand one",
          [](T a) {
            return a.expand({5, 4});
          },
          numbers({5, 1})),
      unary(
          "squeeze", [](T a) { return a.squeeze(); }, numbers({1, 4, 1})),
      unary(
          "squeeze dim", [](T a) { return a.squeeze(0).squeeze(0); }, numbers({1, 4, 3})),
      unary(
          "squeeze no dim", [](T a) { return a.squeeze(c10::IntArrayRef{}); }, numbers({1, 4, 1})),
      unary("unsqueeze", [](T a) { return a.unsqueeze(1).unsqueeze(-1); }),
      unary(
          "select", [](T a) { return a.select(1, 2); }, x()),
      unary(
          "slice", [](T a) { return a.slice(1, 1, 5, 2); }, x()),
      unary(
          "slice of all", [](T a) { return a.slice(1, 0, 6); }, x()),
      unary(
          "narrow", [](T a) { return a.narrow(0, 1, 2); }, x()),
      {"split", {x()}, [](const Tensors& in) { return in[0].split(2, 1); }},
      {"split unevenly", {x()}, [](const Tensors& in) { return in[0].split(4, 1); }},
      {"split with sizes",
       {x()},
       [](const Tensors& in) {
         return in[0].split_with_sizes({1, 3}, 0);
       }},
      {"chunk", {x()}, [](const Tensors& in) { return in[0].chunk(3, 2); }},
      {"unbind", {x()}, [](const Tensors& in) { return in[0].unbind(1); }},
      binary(
          "cat",
          [](T a, T b) {
            return at::cat({a, b}, 1);
          },
          numbers({5, 3}), numbers({5, 2}, 1)),
      binary("cat equal",
             [](T a, T b) {
               return at::cat({a, b}, 0);
             }),
      {"cat with an old empty tensor first",
       {numbers({2, 3, 4}), numbers({2, 3, 4}, 1)},
       [](const Tensors& in) {
         const auto nothing = in[0].detach().new_empty({0});
         return Tensors{at::cat({nothing, in[0]}, 2), at::cat({nothing, in[0], in[1]}, -1)};
       }},
      binary("cat and split",
             [](T a, T b) {
               return at::cat({a, b}, 0).split(5, 0)[1];
             }),
      binary("stack",
             [](T a, T b) {
               return at::stack({a, b}, 1);
             }),
      unary("tril", [](T a) { return a.tril() + a.triu(1); }),
  };
}

// Values along a dimension and where they were.
std::vector<OpCase> selection_cases() {
  using T = const at::Tensor&;
  using Selection = std::tuple<at::Tensor, at::Tensor> (*)(const at::Tensor&);
  const auto selects = [](const std::string& name, Selection run, at::Tensor input = numbers({5, 3, 2})) {
    return OpCase{name, {std::move(input)}, [run](const Tensors& in) {
                    const auto [values, where] = run(in[0]);
                    return Tensors{values, where};
                  }};
  };
  return {
      selects("max dim", [](T a) { return a.max(1); }),
      selects("max of all in a dim", [](T a) { return a.max(0, true); }),
      selects(
          "max of a number", [](T a) { return a.max(0); }, numbers({})),
      selects("min dim", [](T a) { return a.min(-1); }),
      selects("sort", [](T a) { return a.sort(0); }),
      selects("stable sort", [](T a) { return a.sort(true, 1, true); }),
      selects(
          "topk", [](T a) { return a.topk(2, 1); }, numbers({5, 6})),
      selects("kthvalue", [](T a) { return a.kthvalue(2, 0); }),
      selects("median dim", [](T a) { return a.median(1); }),
      selects("nanmedian dim", [](T a) { return a.nanmedian(0, true); }),
      selects("mode", [](T a) { return a.mode(1); }),
      selects("cummax", [](T a) { return a.cummax(0); }),
      selects("cummin", [](T a) { return a.cummin(-2); }),
      unary("median", [](T a) { return a.median(); }),
      unary("nanmedian", [](T a) { return a.nanmedian(); }),
      unary("cumprod", [](T a) { return a.detach().cumprod(0); }),
      unary("nonzero", [](T a) { return (a > 0).nonzero(); }),
      unary("second gradient",
            [](T a) {
              const auto value = std::get<0>((a * a).max(0));
              return torch::autograd::grad({value.pow(3).sum()}, {a}, {}, std::nullopt, /*create_graph=*/true)[0];
            }),
  };
}

std::vector<OpCase> reduction_cases() {
  using T = const at::Tensor&;
  const auto x = [] { return numbers({5, 3, 2}); };
  return {
      unary(
          "sum", [](T a) { return a.sum(); }, x()),
      unary(
          "sum dim", [](T a) { return a.sum(0); }, x()),
      unary(
          "sum dims",
          [](T a) {
            return a.sum(c10::IntArrayRef{0, 2}, true);
          },
          x()),
      unary(
          "mean", [](T a) { return a.mean(); }, x()),
      unary(
          "mean dim", [](T a) { return a.mean(1); }, x()),
      unary(
          "mean dims",
          [](T a) {
            return a.mean(c10::IntArrayRef{0, 1}, true);
          },
          x()),
      unary(
          "prod", [](T a) { return a.prod(); }, positive({5, 3})),
      unary(
          "prod with a zero", [](T a) { return a.prod(); }, with_zeros({5, 3}, 1)),
      unary(
          "prod with zeros", [](T a) { return a.prod(); }, with_zeros({5, 3}, 2)),
      unary(
          "prod dim", [](T a) { return a.prod(0); }, positive({5, 3, 2})),
      unary(
          "prod dim with zeros", [](T a) { return a.prod(1, true); }, with_zeros({5, 3}, 2)),
      unary("amax", [](T a) { return a.amax(0); }),
      unary("amin",
            [](T a) {
              return a.amin({0, 1}, true);
            }),
      unary("max", [](T a) { return a.max(); }),
      unary("min", [](T a) { return a.min(); }),
  };
}

std::vector<OpCase> search_cases() {
  using T = const at::Tensor&;
  const auto x = [] { return numbers({5, 3, 2}); };
  return {
      unary("argmax", [](T a) { return a.argmax(1); }),
      unary("any", [](T a) { return (a > 0.9).any(1); }),
      unary("all", [](T a) { return (a > -5).all(); }),
      unary("var", [](T a) { return a.var(0); }),
      unary("std", [](T a) { return a.std(1, false, true); }),
      unary("logsumexp", [](T a) { return a.logsumexp(1); }),
      unary(
          "norm", [](T a) { return a.norm(); }, x()),
      unary(
          "norm 1", [](T a) { return a.norm(1); }, x()),
      unary(
          "norm dim", [](T a) { return at::linalg_vector_norm(a, 3, 0); }, x()),
      unary(
          "norm inf",
          [](T a) {
            return at::linalg_vector_norm(a, INFINITY, c10::IntArrayRef{0, 1}, true);
          },
          x()),
      unary(
          "norm 0", [](T a) { return at::linalg_vector_norm(a.detach(), 0); }, x()),
      unary(
          "cumsum", [](T a) { return a.cumsum(1); }, x()),
      unary(
          "flip", [](T a) { return a.flip({0}); }, x()),
      unary(
          "safe softmax", [](T a) { return at::_safe_softmax(a, 1); }, x()),
      unary(
          "softmax", [](T a) { return a.softmax(1); }, x()),
      unary(
          "log_softmax", [](T a) { return a.log_softmax(-1); }, x()),
  };
}

}  // namespace cohort::test
