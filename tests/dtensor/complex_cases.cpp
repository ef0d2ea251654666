// Complex numbers, made of real ones in the case itself, so that the gradients are real.
#include <ATen/ATen.h>

#include "tests/dtensor/op_cases.h"

namespace cohort::test {
namespace {

using T = const at::Tensor&;

// Pairs of numbers as complex ones. Gives what is made of them as it is, lazily conjugated or not, and its parts.
OpCase of_complex(const std::string& name, at::Tensor (*run)(const at::Tensor&),
                  at::Tensor input = numbers({5, 3, 2})) {
  return {name, {std::move(input)}, [run](const Tensors& in) {
            const auto made = run(at::view_as_complex(in[0]));
            if (!made.is_complex()) return Tensors{made};
            return Tensors{made.detach(), at::view_as_real(made.resolve_conj()), at::real(made), at::imag(made)};
          }};
}

OpCase of_two(const std::string& name, at::Tensor (*run)(const at::Tensor&, const at::Tensor&), at::Tensor second) {
  return {name, {numbers({5, 3, 2}), std::move(second)}, [run](const Tensors& in) {
            const auto made = run(at::view_as_complex(in[0]), at::view_as_complex(in[1]));
            return Tensors{made.detach(), at::real(made), at::imag(made)};
          }};
}

}  // namespace

std::vector<OpCase> complex_cases() {
  return {
      of_complex("view_as_complex", [](T z) { return z * 1; }),
      of_complex("conj", [](T z) { return z.conj(); }),
      of_complex("conj twice", [](T z) { return z.conj().conj(); }),
      of_complex("conj of a view", [](T z) { return z.t().slice(0, 1).conj(); }),
      of_complex("view of a conj", [](T z) { return z.conj().t().slice(1, 1, 4); }),
      of_complex("conj of a number", [](T z) { return z.sum().conj(); }),
      of_complex(
          "conj of one number", [](T z) { return z.conj(); }, numbers({2})),
      of_complex("resolve_conj", [](T z) { return z.conj().resolve_conj(); }),
      of_complex("conj_physical", [](T z) { return at::conj_physical(z) + at::conj_physical(z.conj()); }),
      of_complex("conj_physical_", [](T z) { return z.clone().conj_physical_(); }),
      of_complex("real", [](T z) { return at::real(z); }),
      of_complex("imag", [](T z) { return at::imag(z); }),
      of_complex("real of a conj", [](T z) { return at::real(z.conj()); }),
      of_complex("imag of a conj", [](T z) { return at::imag(z.conj()); }),
      of_complex("resolve_neg", [](T z) { return at::imag(z.conj()).resolve_neg(); }),
      of_complex("neg view", [](T z) { return at::_neg_view(z); }),
      of_complex("sum of a neg view", [](T z) { return at::imag(z.conj()).sum(0); }),
      of_complex("product of a neg view", [](T z) { return at::imag(z.conj()) * at::real(z); }),
      of_complex("neg view in a matrix product", [](T z) { return at::imag(z.conj()).t().mm(at::real(z)); }),
      of_complex("view_as_real", [](T z) { return at::view_as_real(z) * 2; }),
      of_complex("sum of a conj", [](T z) { return z.conj().sum(); }),
      of_complex("sum dim of a conj", [](T z) { return z.conj().sum(0); }),
      of_complex("mean dim of a conj", [](T z) { return z.conj().mean(1); }),
      of_complex("square", [](T z) { return z.conj() * z; }),
      of_complex("abs of a conj", [](T z) { return z.conj().abs(); }),
      of_complex("angle", [](T z) { return z.conj().angle(); }),
      of_complex("clone of a conj", [](T z) { return z.conj().clone(); }),
      of_complex("contiguous conj", [](T z) { return z.mH().contiguous(); }),
      of_complex("view of a conj in other sizes",
                 [](T z) {
                   return z.conj().view({3, 5});
                 }),
      of_complex("Hermitian product", [](T z) { return z.mH().mm(z); }),
      of_complex("product of conjs", [](T z) { return z.conj().mm(z.conj().t()); }),
      of_two(
          "product with a conj", [](T z, T other) { return z.mm(other.conj()); }, numbers({3, 4, 2}, 1)),
      of_two(
          "sum with a conj", [](T z, T other) { return z + other.conj(); }, numbers({5, 3, 2}, 1)),
      of_two(
          "cat with a conj",
          [](T z, T other) {
            return at::cat({z.conj(), other}, 0);
          },
          numbers({5, 3, 2}, 1)),
      of_two(
          "batched product with a conj",
          [](T z, T other) { return z.unsqueeze(0).conj().bmm(other.unsqueeze(0).conj()); }, numbers({3, 4, 2}, 1)),
      {"complex",
       {numbers({5, 3}), numbers({5, 3}, 1)},
       [](const Tensors& in) { return Tensors{at::view_as_real(at::complex(in[0], in[1]))}; }},
      {"polar",
       {positive({5, 3}), numbers({5, 3}, 1)},
       [](const Tensors& in) { return Tensors{at::view_as_real(at::polar(in[0], in[1]))}; }},
  };
}

}  // namespace cohort::test
