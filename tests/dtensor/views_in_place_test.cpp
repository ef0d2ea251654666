// What is written to a view of a DTensor reaches the tensor, and the other way round, however it lies: against one process.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>

#include <functional>
#include <optional>
#include <string>

#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/api/factories.h"
#include "cohort/parallel/tensor/parallelize_module.h"
#include "tests/dtensor/op_cases.h"
#include "tests/mesh/thread_mesh.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::numbers;
using test::run_rank_threads;
using test::thread_mesh;
using Tensors = std::vector<at::Tensor>;

struct Program {
  std::string name;
  /// Writes to `x`, of 5 x 4 numbers, or to views of it; gives what it has read.
  std::function<Tensors(const at::Tensor& x)> run;
  bool is_linear = false;  ///< so that summands will do
};

std::vector<Program> programs() {
  using T = const at::Tensor&;
  const auto row = [] { return numbers({4}, 3); };
  return {
      {"a row becomes zero", [](T x) -> Tensors { return {x[0].zero_()}; }, true},
      {"a column becomes zero", [](T x) -> Tensors { return {x.select(1, 2).zero_()}; }, true},
      {"rows are scaled", [](T x) -> Tensors { return {x.slice(0, 1, 4).mul_(3)}; }, true},
      {"a number changes", [](T x) -> Tensors { return {x[3][1].fill_(7)}; }},
      {"columns are copied",
       [](T x) -> Tensors {
         return {x.slice(1, 1, 3).copy_(numbers({5, 2}, 1))};
       }},
      {"a row is added", [row](T x) -> Tensors { return {x[4].add_(row())}; }},
      {"steps", [](T x) -> Tensors { return {x.slice(0, 0, 5, 2).fill_(-1)}; }},
      {"other order",
       [](T x) -> Tensors {
         return {x.t()[1].fill_(4), x.transpose(0, 1).slice(0, 2).mul_(2)};
       }},
      {"other shape", [](T x) -> Tensors { return {x.view({-1}).slice(0, 3, 9).fill_(5)}; }},
      {"parts",
       [](T x) -> Tensors {
         return {x.split(2)[1].fill_(6), x.unbind(1)[3].mul_(-1), x.chunk(2, 1)[0].add_(1)};
       }},
      {"a view of a view",
       [](T x) -> Tensors {
         const auto rows = x.slice(0, 1, 4);
         const auto inner = rows.slice(1, 1, 3);
         inner.fill_(8);
         rows[0].add_(1);
         return {rows.clone(), inner.clone()};
       }},
      {"the tensor changes under a view",
       [](T x) -> Tensors {
         const auto view = x[2];
         const auto column = x.select(1, 1);
         x.mul_(2);
         const auto seen = view.clone();
         view.add_(1);
         const auto crossing = column.clone();
         x.fill_(3);
         return {seen, crossing, view.clone(), view * 1, column + 0};
       }},
      {"two views of the same rows",
       [](T x) -> Tensors {
         const auto first = x.slice(0, 0, 3), second = x.slice(0, 2, 5);
         first.fill_(1);
         second.mul_(10);
         return {first.clone(), second.clone()};
       }},
      {"complex numbers by conjugates and parts",
       [](T x) -> Tensors {
         const auto z = at::view_as_complex(x.view({5, 2, 2}));
         const auto conjugate = z.conj();
         conjugate[3].mul_(c10::complex<double>(1, 2));
         at::imag(z).slice(0, 1, 3).add_(2);
         at::imag(conjugate)[0].fill_(3);
         at::real(conjugate).select(1, 1).mul_(4);
         at::view_as_real(z)[4].fill_(1);
         z.conj_physical_();
         return {z.clone(), conjugate.clone(), at::imag(conjugate), at::real(z) + 0};
       }},
      {"a detached tensor's view",
       [](T x) -> Tensors {
         const auto view = x.detach()[1];
         view.fill_(2);
         return {view.clone()};
       }},
  };
}

void require_equal(const at::Tensor& actual, const at::Tensor& expected, const std::string& name) {
  const auto whole = is_dtensor(actual) ? DTensor(actual).full_tensor() : actual;
  if (!at::allclose(whole, expected)) {
    throw std::runtime_error(c10::str(name, ": expected ", expected, ", got ", whole));
  }
}

void run_all(const DeviceMesh& mesh, const Placements& placements) {
  const at::NoGradGuard no_grad;
  for (const auto& program : programs()) {
    const bool is_partial =
        std::any_of(placements.begin(), placements.end(), [](const auto& each) { return each.is_partial(); });
    if (is_partial && !program.is_linear) continue;
    const auto name = c10::str(program.name, " on ", to_string(placements));
    const auto plain = numbers({5, 4});
    const DTensor tensor = distribute_tensor(plain.clone(), mesh, placements, std::nullopt);
    const auto expected = program.run(plain);
    const auto actual = program.run(tensor);
    require_equal(tensor, plain, name);
    for (size_t i = 0; i < expected.size(); ++i) require_equal(actual[i], expected[i], name + ", what it gives");
  }
}

TEST(ViewsInPlace, AreOfTheTensorOnOneAxis) {
  run_rank_threads(3, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {3});
    for (const auto& placement :
         {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1)), Placement(Partial())}) {
      run_all(mesh, {placement});
    }
  });
}

TEST(ViewsInPlace, AreOfTheTensorOnTwoAxes) {
  run_rank_threads(4, [](int, const Group& group) {
    const auto mesh = thread_mesh(group, {2, 2});
    run_all(mesh, {Shard(0), Shard(1)});
    run_all(mesh, {Shard(1), Replicate()});
    run_all(mesh, {Shard(0), Shard(0)});
    run_all(mesh, {StridedShard(0, 2), Shard(0)});
    run_all(mesh, {Shard(0), Partial()});
  });
}

TEST(ViewsInPlace, InInferenceMode) {
  run_rank_threads(2, [](int, const Group& group) {
    const c10::InferenceMode inference;
    run_all(thread_mesh(group, {2}), {Shard(0)});
  });
}

// LibTorch writes zeros to a row of the weight.
TEST(ViewsInPlace, AnEmbeddingsPaddingIsZeroAfterAReset) {
  run_rank_threads(2, [](int, const Group& group) {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(7, 4).padding_idx(5));
    parallelize_module(*table, thread_mesh(group, {2}), {{"", RowwiseParallel()}});
    table->reset_parameters();
    const auto weight = DTensor(table->weight).full_tensor();
    REQUIRE(at::equal(weight[5], at::zeros({4})));
    REQUIRE(weight.ne(0).any(1).sum().item<int64_t>() == 6);
  });
}

}  // namespace
}  // namespace cohort
