#include "cohort/parallel/data_parallel/parallel_apply.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <set>
#include <stdexcept>
#include <thread>

#include "tests/support/require.h"

namespace cohort::nn::parallel {
namespace {

using test::error_of;

Devices three_cpus() { return Devices(3, at::kCPU); }

TEST(ParallelApply, EachTaskInAThreadOfItsOwnWhichIsKept) {
  ReplicaThreads threads;
  std::vector<std::thread::id> first(3);
  std::vector<std::thread::id> second(3);
  threads.run(three_cpus(), [&](size_t i) { first[i] = std::this_thread::get_id(); });
  threads.run(three_cpus(), [&](size_t i) { second[i] = std::this_thread::get_id(); });
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 3);
  EXPECT_EQ(first, second);
  EXPECT_EQ(first[0], std::this_thread::get_id());
}

TEST(ParallelApply, ThreadsHaveTheCallersModes) {
  ReplicaThreads threads;
  const auto modes = [&] {
    std::vector<std::string> found(3);
    threads.run(three_cpus(), [&](size_t i) {
      found[i] =
          c10::str(at::GradMode::is_enabled(), at::autocast::is_autocast_enabled(at::kCPU), at::get_num_threads());
    });
    EXPECT_EQ(found, std::vector<std::string>(3, found[0]));
    return found[1];
  };
  at::set_num_threads(1);
  EXPECT_EQ(modes(), "101");
  at::set_num_threads(2);
  {
    const at::NoGradGuard no_grad;
    at::autocast::set_autocast_enabled(at::kCPU, true);
    EXPECT_EQ(modes(), "012");
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  EXPECT_EQ(modes(), "102");
  at::set_num_threads(1);
}

TEST(ParallelApply, AReplicasErrorKeepsItsTypeAndNamesThePlaceMessage) {
  ReplicaThreads threads;
  int ended = 0;
  try {
    threads.run(three_cpus(), [&](size_t i) {
      if (i == 0) ++ended;
      TORCH_CHECK_VALUE(i == 0, "no part ", i);
    });
    FAIL();
  } catch (const c10::ValueError& error) {
    EXPECT_STREQ(error.what_without_backtrace(), "no part 1 (in replica 1 on device cpu)");
  }
  EXPECT_EQ(ended, 1);
  try {
    threads.run(three_cpus(), [](size_t i) {
      if (i == 2) throw std::out_of_range("too far");
    });
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "too far (in replica 2 on device cpu)");
    EXPECT_THROW(std::rethrow_if_nested(error), std::out_of_range);
  }
  EXPECT_THROW(threads.run(three_cpus(), [](size_t) { throw 1; }), int);
  std::vector<int> done(3);
  threads.run(three_cpus(), [&](size_t i) { done[i] = 1; });
  EXPECT_EQ(done, std::vector<int>(3, 1)) << "threads are usable after an error";
}

struct SlowerImpl : torch::nn::Module {
  explicit SlowerImpl(int factor) : factor(factor) {}
  at::Tensor forward(const at::Tensor& x, int power) { return x.pow(power) * factor; }
  int factor;
};

TEST(ParallelApply, EachModuleGetsItsOwnInputs) {
  using Inputs = std::tuple<at::Tensor, int>;
  const std::vector modules{std::make_shared<SlowerImpl>(1), std::make_shared<SlowerImpl>(10)};
  const auto outputs =
      parallel_apply(modules, std::vector<Inputs>{{at::tensor({2}), 1}, {at::tensor({3}), 2}}, Devices(2, at::kCPU));
  EXPECT_EQ(outputs[0].item<int>(), 2);
  EXPECT_EQ(outputs[1].item<int>(), 90);
  EXPECT_EQ(error_of([&] { parallel_apply(modules, std::vector<Inputs>(1), Devices(2, at::kCPU)); }),
            "The number of modules 2 is not equal to the number of inputs 1");
  EXPECT_EQ(error_of([&] { parallel_apply(modules, std::vector<Inputs>(2), Devices(3, at::kCPU)); }),
            "The number of modules 2 is not equal to the number of devices 3");
}

}  // namespace
}  // namespace cohort::nn::parallel
