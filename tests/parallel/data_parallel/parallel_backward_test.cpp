#include "cohort/parallel/data_parallel/parallel_backward.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "cohort/parallel/data_parallel/data_parallel.h"
#include "tests/parallel/data_parallel/nets.h"
#include "tests/support/require.h"

namespace cohort::nn::parallel {
namespace {

using test::error_of;
using test::loss_of;
using test::ManySided;

const Devices kThree{at::kCPU, at::kCPU, at::kCPU};

// Notes the threads in which backward comes by, by the first number of the part.
struct WatchedImpl : torch::nn::Cloneable<WatchedImpl> {
  WatchedImpl() { WatchedImpl::reset(); }
  void reset() override { weight = register_parameter("weight", at::full({2}, 3.0)); }
  std::vector<at::Tensor> forward(const at::Tensor& x) {
    const auto hidden = x * weight;
    const auto part = x[0][0].item<double>();
    hidden.register_hook([part](const at::Tensor&) {
      TORCH_CHECK(part != fails_in, "of the test");
      const std::lock_guard lock(mutex);
      threads[part] = std::this_thread::get_id();
    });
    const auto y = hidden * hidden;
    if (extra.defined()) return {y + extra, hidden};
    return {y, hidden, y};
  }
  at::Tensor weight;
  at::Tensor extra;  // nothing that DataParallel knows of

  static inline std::mutex mutex;
  static inline std::map<double, std::thread::id> threads;
  static inline double fails_in = -1;
};
TORCH_MODULE(Watched);

at::Tensor three_parts() { return at::arange(6, at::kDouble).view({3, 2}); }

size_t num_threads() {
  std::set<std::thread::id> ids;
  for (const auto& entry : WatchedImpl::threads) ids.insert(entry.second);
  return ids.size();
}

class ParallelBackward : public testing::Test {
 protected:
  void SetUp() override {
    torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
    WatchedImpl::threads.clear();
    WatchedImpl::fails_in = -1;
  }
  void TearDown() override { torch::set_default_dtype(caffe2::TypeMeta::Make<float>()); }
};

TEST_F(ParallelBackward, EachReplicaHasAThread) {
  Watched net;
  DataParallel parallel(net, kThree);
  const auto x = three_parts().set_requires_grad(true);
  const auto results = parallel(x);
  (results[0].sum() + results[1].sum() + results[2].sum()).backward();
  EXPECT_EQ(WatchedImpl::threads.size(), 3);
  EXPECT_EQ(num_threads(), 3);
  // 2 (wx)^2 + wx
  EXPECT_TRUE(at::allclose(x.grad(), 4 * 9 * x.detach() + 3));
  EXPECT_TRUE(at::allclose(net->weight.grad(), (4 * 3 * x.detach().square() + x.detach()).sum(0)));
}

TEST_F(ParallelBackward, ResultsThatTheLossLeavesOut) {
  Watched net;
  DataParallel parallel(net, kThree);
  parallel(three_parts())[1].narrow(0, 1, 1).sum().backward();
  EXPECT_TRUE(at::equal(net->weight.grad(), at::tensor({2.0, 3.0})));
}

TEST_F(ParallelBackward, ATwiceWantedGraphIsKeptOnRequestMessage) {
  Watched net;
  DataParallel parallel(net, kThree);
  const auto loss = parallel(three_parts())[0].sum();
  loss.backward({}, /*retain_graph=*/true);
  const auto once = net->weight.grad().clone();
  loss.backward();
  EXPECT_TRUE(at::allclose(net->weight.grad(), 2 * once));
  const auto shallow = parallel(three_parts())[0];
  const auto gradients = std::vector<at::Tensor>{at::ones({3, 2})};
  torch::autograd::grad({shallow}, {net->weight}, gradients);
  EXPECT_EQ(error_of([&] { torch::autograd::grad({shallow}, {net->weight}, gradients); }),
            "Trying to backward through the graph a second time, after the graph of DataParallel's replicas was freed. "
            "Specify retain_graph=true if you need to backward through the graph a second time.");
}

TEST_F(ParallelBackward, LeavesThatAreNoParametersHaveTheirGradients) {
  Watched net;
  net->extra = at::ones({2}).set_requires_grad(true);
  DataParallel parallel(net, kThree);
  parallel(three_parts())[0].sum().backward();
  EXPECT_TRUE(at::equal(net->extra.grad(), at::full({2}, 3.0)));
  EXPECT_EQ(num_threads(), 1);
}

TEST_F(ParallelBackward, ErrorsNameTheReplicaMessage) {
  Watched net;
  DataParallel parallel(net, kThree);
  WatchedImpl::fails_in = 2;
  EXPECT_EQ(error_of([&] { parallel(three_parts())[0].sum().backward(); }), "of the test (in replica 1 on device cpu)");
  WatchedImpl::fails_in = -1;
  net->zero_grad();
  parallel(three_parts())[0].sum().backward();
  EXPECT_TRUE(at::allclose(net->weight.grad(), (2 * 3 * three_parts().square()).sum(0)));
}

TEST_F(ParallelBackward, ThirdDerivatives) {
  Watched net;
  const auto penalty_of = [&](const auto& model) {
    const auto x = three_parts().set_requires_grad(true);
    const auto first = torch::autograd::grad({model(x)[0].pow(2).sum()}, {x}, {}, std::nullopt, true)[0];
    const auto second = torch::autograd::grad({first.pow(2).sum()}, {net->weight}, {}, std::nullopt, true)[0];
    net->zero_grad();
    second.sum().backward();
    return net->weight.grad().clone();
  };
  DataParallel parallel(net, kThree);
  const auto ours = penalty_of([&](const at::Tensor& x) { return parallel(x); });
  const auto alone = penalty_of([&](const at::Tensor& x) { return net->forward(x); });
  EXPECT_TRUE(at::allclose(ours, alone));
}

struct OuterImpl : torch::nn::Cloneable<OuterImpl> {
  OuterImpl() { OuterImpl::reset(); }
  void reset() override { inner = register_module("inner", Watched()); }
  at::Tensor forward(const at::Tensor& x) { return data_parallel(inner, x, {at::kCPU, at::kCPU})[0]; }
  Watched inner{nullptr};
};
TORCH_MODULE(Outer);

TEST_F(ParallelBackward, DataParallelWithinDataParallel) {
  Outer net;
  DataParallel parallel(net, {at::kCPU, at::kCPU});
  const auto x = at::arange(8).to(at::kDouble).view({4, 2});
  parallel(x).sum().backward();
  EXPECT_EQ(num_threads(), 4);
  EXPECT_TRUE(at::allclose(net->inner->weight.grad(), (2 * 3 * x.square()).sum(0)));
}

}  // namespace
}  // namespace cohort::nn::parallel
