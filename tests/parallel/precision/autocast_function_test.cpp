// Functions with a backward of their own under autocast.
#include "cohort/parallel/precision/autocast_function.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/require.h"

namespace cohort {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Whether autocast is on, and in which dtype it is or would be.
using Seen = std::pair<bool, at::ScalarType>;

Seen seen_now() { return {at::autocast::is_autocast_enabled(at::kCPU), at::autocast::get_autocast_dtype(at::kCPU)}; }

struct Watched : torch::autograd::Function<Watched> {
  static inline std::optional<at::ScalarType> cast_inputs;
  static inline Seen in_forward, in_backward;
  static inline at::ScalarType input_dtype;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    const auto region = custom_fwd(ctx, at::kCPU, cast_inputs);
    in_forward = seen_now();
    input_dtype = region.cast(x).scalar_type();
    return x * 2;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto region = custom_bwd(ctx, at::kCPU);
    in_backward = seen_now();
    return {gradients[0] * 2};
  }
};

void run_watched(at::ScalarType input_dtype, std::optional<AutocastOptions> around_forward,
                 std::optional<AutocastOptions> around_backward) {
  const auto x = torch::ones({2}, at::TensorOptions(input_dtype).requires_grad(true));
  at::Tensor y;
  {
    std::optional<Autocast> region;
    if (around_forward) region.emplace(at::kCPU, *around_forward);
    y = Watched::apply(x);
    EXPECT_EQ(at::autocast::is_autocast_enabled(at::kCPU), around_forward.has_value());
  }
  std::optional<Autocast> region;
  if (around_backward) region.emplace(at::kCPU, *around_backward);
  y.sum().backward();
  EXPECT_EQ(at::autocast::is_autocast_enabled(at::kCPU), around_backward.has_value());
  EXPECT_TRUE(x.grad().equal(at::full({2}, 2, input_dtype)));
}

TEST(AutocastFunction, BackwardHasTheStateOfForward) {
  Watched::cast_inputs.reset();
  run_watched(at::kFloat, AutocastOptions{.dtype = at::kHalf}, std::nullopt);
  EXPECT_EQ(Watched::in_forward, Seen(true, at::kHalf));
  EXPECT_EQ(Watched::in_backward, Seen(true, at::kHalf));
  EXPECT_EQ(Watched::input_dtype, at::kFloat);
  run_watched(at::kFloat, std::nullopt, AutocastOptions{.dtype = at::kHalf});
  EXPECT_EQ(Watched::in_forward, Seen(false, at::kBFloat16));
  EXPECT_EQ(Watched::in_backward, Seen(false, at::kBFloat16));
}

TEST(AutocastFunction, WithADtypeForInputsItRunsWithoutAutocast) {
  Watched::cast_inputs = at::kFloat;
  run_watched(at::kBFloat16, AutocastOptions{}, AutocastOptions{.dtype = at::kHalf});
  EXPECT_EQ(Watched::in_forward, Seen(false, at::kBFloat16));
  EXPECT_EQ(Watched::in_backward, Seen(false, at::kBFloat16));
  EXPECT_EQ(Watched::input_dtype, at::kFloat);
}

TEST(AutocastFunction, OutsideOfAutocastInputsStayAsTheyAre) {
  Watched::cast_inputs = at::kFloat;
  run_watched(at::kBFloat16, std::nullopt, std::nullopt);
  EXPECT_EQ(Watched::input_dtype, at::kBFloat16);
}

TEST(AutocastFunction, CastsWhatLiesInContainersButNoFloat64AndNoIntegers) {
  const Autocast autocast(at::kCPU);
  AutogradContext context;
  const auto region = custom_fwd(&context, at::kCPU, at::kHalf);
  const std::pair<std::vector<at::Tensor>, std::map<std::string, at::Tensor>> cast =
      region.cast(std::pair(std::vector{at::ones({1}), at::ones({1}, at::kDouble), at::ones({1}, at::kLong)},
                            std::map<std::string, at::Tensor>{{"x", at::ones({1}, at::kBFloat16)}}));
  EXPECT_EQ(cast.first[0].scalar_type(), at::kHalf);
  EXPECT_EQ(cast.first[1].scalar_type(), at::kDouble);
  EXPECT_EQ(cast.first[2].scalar_type(), at::kLong);
  EXPECT_EQ(cast.second.at("x").scalar_type(), at::kHalf);
  EXPECT_EQ(region.cast(at::ones({1}, at::device(at::kMeta))).scalar_type(), at::kFloat) << "of another device";
}

TEST(AutocastFunction, BackwardWithoutANoteOfForwardMessage) {
  AutogradContext context;
  EXPECT_EQ(test::error_of([&] { const auto region = custom_bwd(&context, at::kCPU); }),
            "[cohort] custom_bwd: this function's forward has not called custom_fwd, so it is unknown whether it ran "
            "under autocast\n  hint: call cohort::custom_fwd(ctx, ...) first in forward");
}

}  // namespace
}  // namespace cohort
