// Backward in two parts gives the gradients of one pass, whatever parameters and inputs have to do with each other.
#include "cohort/parallel/pipeline/split_backward.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <utility>

#include "tests/parallel/tensor/numbers.h"
#include "tests/support/rounding.h"

namespace cohort {
namespace {

using Graph = std::function<TensorList(const TensorList& inputs, const TensorList& parameters)>;

TensorList leaves(int64_t count, uint64_t seed) {
  TensorList tensors;
  for (int64_t i = 0; i < count; ++i) {
    tensors.push_back(test::drawn({4, 4}, seed + static_cast<uint64_t>(i)).requires_grad_(true));
  }
  return tensors;
}

// Of four numbers each, in at most three products forward and their gradients, in each of two passes.
constexpr int64_t kSums = 2 * 2 * 3 * 4;

// Two passes, so that gradients are added up.
void expect_gradients_of_one_pass(const Graph& graph) {
  const TensorList inputs = leaves(2, 1), parameters = leaves(3, 5),
                   seeds = {test::drawn({4, 4}, 11), test::drawn({4, 4}, 12)};
  const TensorList own_inputs = leaves(2, 1), own_parameters = leaves(3, 5);
  for (int pass = 0; pass < 2; ++pass) {
    const TensorList outputs = graph(inputs, parameters);
    torch::autograd::backward(outputs, TensorList(seeds.begin(), seeds.begin() + static_cast<long>(outputs.size())));
    TensorList own = graph(own_inputs, own_parameters);
    pipeline::WeightPart part;
    const TensorList input_grads = pipeline::backward_input(own, seeds, own_inputs, own_parameters, &part);
    own.clear();
    pipeline::backward_weight(std::move(part));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const at::Tensor expected = std::exchange(inputs[i].mutable_grad(), at::Tensor());
      ASSERT_EQ(input_grads[i].defined(), expected.defined()) << "input " << i;
      EXPECT_TRUE(!expected.defined() || test::are_rounded_alike(input_grads[i], expected, kSums)) << "input " << i;
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& expected = parameters[i].grad();
      ASSERT_EQ(own_parameters[i].grad().defined(), expected.defined()) << "parameter " << i;
      EXPECT_TRUE(!expected.defined() || test::are_rounded_alike(own_parameters[i].grad(), expected, kSums))
          << "parameter " << i;
    }
  }
}

TEST(SplitBackward, OfAParameterThatIsUsedTwice) {
  // The second use lies above the first one: what comes from there is in the first one's gradient already.
  expect_gradients_of_one_pass([](const TensorList& x, const TensorList& w) {
    return TensorList{((x[0].mm(w[0])).tanh().mm(w[0]) + w[1]).mm(w[0].t())};
  });
}

TEST(SplitBackward, OfParametersThatMeetBeforeTheyJoin) {
  expect_gradients_of_one_pass([](const TensorList& x, const TensorList& w) {
    const at::Tensor both = w[0] * w[1];
    return TensorList{(x[0] * both).tanh().mm(w[1]), x[1].mm(both).sigmoid() + w[2]};
  });
}

TEST(SplitBackward, OfParametersThatNoInputHasAPartIn) {
  expect_gradients_of_one_pass([](const TensorList& x, const TensorList& w) {
    return TensorList{x[0].tanh() * x[0], w[0].mm(w[1]).tanh()};
  });
}

TEST(SplitBackward, OfOneOutputOfTwo) {
  expect_gradients_of_one_pass([](const TensorList& x, const TensorList& w) {
    const auto halves = x[0].mm(w[0]).chunk(2, 1);
    return TensorList{at::cat({halves[1], x[1].mm(w[1]).narrow(1, 0, 2)}, 1)};
  });
}

}  // namespace
}  // namespace cohort
