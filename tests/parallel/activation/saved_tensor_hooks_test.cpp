#include "cohort/parallel/activation/saved_tensor_hooks.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/ThreadLocalState.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cohort/parallel/activation/save_on_cpu.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;

PackHook counting(int& num_packed, int& num_unpacked) {
  return [&](const at::Tensor& saved) -> UnpackHook {
    ++num_packed;
    return [&, kept = saved.detach()] {
      ++num_unpacked;
      return kept;
    };
  };
}

TEST(SavedTensorHooks, PackWhatIsSavedAndUnpackWhenBackwardAsks) {
  int num_packed = 0;
  int num_unpacked = 0;
  const auto a = torch::ones({5}, at::requires_grad());
  const auto b = torch::full({5}, 2.0, at::requires_grad());
  at::Tensor y;
  {
    const SavedTensorHooks hooks(counting(num_packed, num_unpacked));
    y = a * b;
  }
  EXPECT_EQ(num_packed, 2);
  EXPECT_EQ(num_unpacked, 0);
  (y * b).sum().backward();
  EXPECT_EQ(num_packed, 2);
  EXPECT_EQ(num_unpacked, 2);
  EXPECT_TRUE(at::equal(a.grad(), torch::full({5}, 4.0)));
}

TEST(SavedTensorHooks, PairsInPythonsForm) {
  const auto a = torch::full({3}, 3.0, at::requires_grad());
  at::Tensor y;
  {
    const SavedTensorHooks hooks([](const at::Tensor& saved) { return saved.mul(10); },
                                 [](const at::Tensor& packed) { return packed; });
    y = a * a;
  }
  y.sum().backward();
  EXPECT_TRUE(at::equal(a.grad(), torch::full({3}, 60.0)));
}

TEST(SavedTensorHooks, OnlyTheInnermostCounts) {
  int outer = 0;
  int inner = 0;
  int unpacked = 0;
  const auto a = torch::ones({2}, at::requires_grad());
  const SavedTensorHooks outer_hooks(counting(outer, unpacked));
  {
    const SavedTensorHooks inner_hooks(counting(inner, unpacked));
    a.exp();
  }
  EXPECT_EQ(inner, 1);
  EXPECT_EQ(outer, 0);
  a.exp();
  EXPECT_EQ(inner, 1);
  EXPECT_EQ(outer, 1);
}

TEST(SavedTensorHooks, BelongToTheirThread) {
  int num_packed = 0;
  int num_unpacked = 0;
  const SavedTensorHooks hooks(counting(num_packed, num_unpacked));
  std::thread([] { torch::ones({2}, at::requires_grad()).exp(); }).join();
  EXPECT_EQ(num_packed, 0);
}

// Threads to which LibTorch hands a caller's state, as backward's, have them too.
TEST(SavedTensorHooks, FollowLibTorchsStateIntoOtherThreads) {
  int num_packed = 0;
  int num_unpacked = 0;
  const SavedTensorHooks hooks(counting(num_packed, num_unpacked));
  const at::ThreadLocalState state;
  std::thread([&] {
    const at::ThreadLocalStateGuard guard(state);
    torch::ones({2}, at::requires_grad()).exp();
  }).join();
  EXPECT_EQ(num_packed, 1);
}

TEST(SavedTensorHooks, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> num_right{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        int num_packed = 0;
        int num_unpacked = 0;
        const auto a = torch::full({2}, t + 1.0, at::requires_grad());
        at::Tensor y;
        {
          const SavedTensorHooks hooks(counting(num_packed, num_unpacked));
          y = a.square();
        }
        y.sum().backward();
        if (num_packed == 1 && num_unpacked == 1 && a.grad()[0].item<double>() == 2 * (t + 1.0)) ++num_right;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(num_right, 80);
}

TEST(SavedTensorHooks, FreeWhatTheyPackedWithTheGraph) {
  const auto token = std::make_shared<int>(0);
  const auto a = torch::ones({2}, at::requires_grad());
  at::Tensor y;
  {
    const SavedTensorHooks hooks(
        [&](const at::Tensor& saved) -> UnpackHook { return [token, kept = saved.detach()] { return kept; }; });
    y = a.exp();
  }
  EXPECT_EQ(token.use_count(), 2);
  y.sum().backward();
  EXPECT_EQ(token.use_count(), 1);
}

TEST(SavedTensorHooks, ErrorsPassThroughForwardAndBackward) {
  const auto a = torch::ones({2}, at::requires_grad());
  {
    const SavedTensorHooks hooks([](const at::Tensor&) -> UnpackHook { throw std::runtime_error("no room"); });
    EXPECT_THROW(a.exp(), std::runtime_error);
  }
  at::Tensor y;
  {
    const SavedTensorHooks hooks(
        [](const at::Tensor&) -> UnpackHook { return []() -> at::Tensor { throw std::logic_error("lost"); }; });
    y = a.exp();
  }
  EXPECT_THROW(y.sum().backward(), std::logic_error);
  a.exp().sum().backward();  // nothing stays behind
  EXPECT_TRUE(a.grad().defined());
}

TEST(SavedTensorHooks, MistakesMessages) {
  const auto a = torch::ones({2}, at::requires_grad());
  at::Tensor y;
  {
    const SavedTensorHooks hooks([](const at::Tensor&) -> UnpackHook { return [] { return at::Tensor(); }; });
    y = a.exp();
  }
  EXPECT_EQ(error_of([&] { y.sum().backward(); }),
            "Output of saved tensor unpack_hook expected to be a Tensor but got an undefined one");
  EXPECT_EQ(error_of([&] {
              const SavedTensorHooks hooks([](const at::Tensor& saved) -> UnpackHook {
                saved.add_(1);
                return [saved] { return saved; };
              });
              (a * 2).exp();
            }),
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook cannot "
            "be modified by in-place operations as this can lead to unexpected side-effects. Please open an issue if "
            "you need to perform in-place operations on the input to a pack hook.");
  at::SavedTensorDefaultHooks::disable("not in this part");
  EXPECT_EQ(error_of([] { const SaveOnCpu offload; }), "not in this part");
  at::SavedTensorDefaultHooks::enable();
}

TEST(SaveOnCpu, ChangesNoNumbersAndLeavesNothingBehind) {
  for (const bool pin_memory : {false, true}) {
    const auto a = torch::rand({4, 4}, at::requires_grad());
    const auto run = [&] { return at::tanh(at::matmul(a, a).exp()).sum(); };
    run().backward();
    const auto expected = a.grad().clone();
    a.mutable_grad().reset();
    c10::weak_intrusive_ptr<c10::StorageImpl> result(c10::intrusive_ptr<c10::StorageImpl>{});
    {
      at::Tensor loss;
      {
        const SaveOnCpu offload({.pin_memory = pin_memory});
        loss = run();
        const auto dropped = a.exp();  // what an operation saves of its own result must not keep itself alive
        result = dropped.storage().getWeakStorageImpl();
      }
      loss.backward();
    }
    EXPECT_TRUE(at::equal(a.grad(), expected));
    EXPECT_TRUE(result.expired());
  }
}

}  // namespace
}  // namespace cohort
