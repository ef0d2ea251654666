#include "cohort/parallel/module/gradient_hooks.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

namespace cohort {
namespace {

TEST(GradientHooks, CallsEveryCallbackInOrderAfterAccumulation) {
  auto parameter = torch::ones({2}, at::requires_grad());
  std::vector<std::string> calls;
  const auto first = parallel::add_gradient_hook(
      parameter, [&](const at::Tensor& p) { calls.push_back("first " + std::to_string(p.grad()[0].item<int>())); });
  const auto second = parallel::add_gradient_hook(parameter, [&](const at::Tensor&) { calls.push_back("second"); });
  (parameter * 3).sum().backward();
  (parameter * 4).sum().backward();
  EXPECT_EQ(calls, (std::vector<std::string>{"first 3", "second", "first 7", "second"}));
}

TEST(GradientHooks, EndWithTheirHandleAndFreeTheSlot) {
  auto parameter = torch::ones({2}, at::requires_grad());
  int calls = 0;
  {
    const auto kept = parallel::add_gradient_hook(parameter, [&](const at::Tensor&) { ++calls; });
    {
      const auto dropped = parallel::add_gradient_hook(parameter, [&](const at::Tensor&) { calls += 100; });
    }
    parameter.sum().backward();
    EXPECT_EQ(calls, 1);
  }
  EXPECT_EQ(torch::autograd::impl::post_acc_grad_hooks(parameter), nullptr);
  parameter.sum().backward();
  EXPECT_EQ(calls, 1);
}

TEST(GradientHooks, RefusesTensorsWithoutAGradientOfTheirOwn) {
  EXPECT_THROW(parallel::add_gradient_hook(torch::ones({2}), [](const at::Tensor&) {}), c10::ValueError);
  EXPECT_THROW(parallel::add_gradient_hook(torch::ones({2}, at::requires_grad()) * 2, [](const at::Tensor&) {}),
               c10::ValueError);
}

TEST(GradientHooks, RefusesAForeignOwnerOfTheSlotMessage) {
  struct Foreign : torch::autograd::PostAccumulateGradHook {
    void operator()(const at::Tensor&) override {}
  };
  auto parameter = torch::ones({2}, at::requires_grad());
  torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Foreign>());
  try {
    parallel::add_gradient_hook(parameter, [](const at::Tensor&) {});
    FAIL() << "a foreign hook was replaced";
  } catch (const c10::ValueError& error) {
    EXPECT_STREQ(error.what_without_backtrace(),
                 "[cohort] the parameter's post-accumulate hook slot is held by something else; use "
                 "cohort::parallel::add_gradient_hook");
  }
}

}  // namespace
}  // namespace cohort
