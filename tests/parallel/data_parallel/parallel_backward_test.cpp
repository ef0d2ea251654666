#include "cohort/parallel/data_parallel/parallel_backward.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <map>
#include <memory>
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
    if (doubles_input) x.register_hook([](const at::Tensor& gradient) { return 2 * gradient; });
    const auto hidden = x * weight;
    const auto part = x[0][0].item<double>();
    hidden.register_hook([part, held = in_graphs](const at::Tensor&) {
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
  static inline bool doubles_input = false;
  static inline std::shared_ptr<int> in_graphs = std::make_shared<int>();
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

// What a type of the user's own holds is joined like the rest, and must not lead past the node.
struct Pair {
  at::Tensor first, second;
};
std::vector<at::Tensor*> cohort_tensor_fields(Pair& pair) { return {&pair.first, &pair.second}; }

struct PairedImpl : torch::nn::Cloneable<PairedImpl> {
  PairedImpl() { PairedImpl::reset(); }
  void reset() override { inner = register_module("inner", Watched()); }
  std::tuple<at::Tensor, Pair, at::Tensor> forward(const at::Tensor& x) {
    const auto results = inner(x);
    return {results[0], {results[1], results[0].sum()}, x};
  }
  Watched inner{nullptr};
};
TORCH_MODULE(Paired);

TEST_F(ParallelBackward, ResultsInTypesOfTheUsersOwn) {
  Paired net;
  DataParallel parallel(net, kThree);
  const auto loss_of_results = [](const auto& results) {
    const auto& [y, pair, same] = results;
    return y.sum() + pair.first.sum() + pair.second.sum() + same.sum();
  };
  for (const bool has_gradient : {false, true}) {
    net->zero_grad();
    WatchedImpl::threads.clear();
    const auto x = three_parts().set_requires_grad(has_gradient);
    loss_of_results(parallel(x)).backward();
    EXPECT_EQ(num_threads(), 3);
    const auto gradient = net->inner->weight.grad().clone(), of_x = x.grad();
    net->zero_grad();
    const auto again = three_parts().set_requires_grad(has_gradient);
    loss_of_results(net(again)).backward();
    EXPECT_TRUE(at::allclose(gradient, net->inner->weight.grad()));
    EXPECT_TRUE(!has_gradient || at::allclose(of_x, again.grad()));
  }
}

// A result is used within the graph, too.
TEST_F(ParallelBackward, GraphsWithoutBackwardAreLetGo) {
  Watched net;
  DataParallel parallel(net, kThree);
  {
    const auto results = parallel(three_parts());
    EXPECT_EQ(WatchedImpl::in_graphs.use_count(), 1 + 3);
  }
  EXPECT_EQ(WatchedImpl::in_graphs.use_count(), 1);
}

TEST_F(ParallelBackward, ResultsThatTheLossLeavesOut) {
  Watched net;
  DataParallel parallel(net, kThree);
  parallel(three_parts())[1].narrow(0, 1, 1).sum().backward();
  EXPECT_TRUE(at::equal(net->weight.grad(), at::tensor({2.0, 3.0})));
}

TEST_F(ParallelBackward, ATwiceWantedGraphIsKeptOnRequest) {
  Watched net;
  DataParallel parallel(net, kThree);
  const auto loss = parallel(three_parts())[0].sum();
  loss.backward({}, /*retain_graph=*/true);
  const auto once = net->weight.grad().clone();
  loss.backward();
  EXPECT_TRUE(at::allclose(net->weight.grad(), 2 * once));
  test::require_equal(error_of([&] { loss.backward(); }).substr(0, 58),
                      "Trying to backward through the graph a second time (or dir");
}

struct HeadsImpl : torch::nn::Cloneable<HeadsImpl> {
  HeadsImpl() { HeadsImpl::reset(); }
  void reset() override { weight = register_parameter("weight", at::full({2}, 3.0)); }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) { return {x * weight, weight.square() * x}; }
  at::Tensor weight;
};
TORCH_MODULE(Heads);

// Neither needs what was saved for the other.
TEST_F(ParallelBackward, OneResultAfterTheOther) {
  Heads net;
  DataParallel parallel(net, kThree);
  const auto x = three_parts();
  const auto [first, second] = parallel(x);
  second.sum().backward();
  first.sum().backward();
  EXPECT_TRUE(at::allclose(net->weight.grad(), (2 * 3 * x + x).sum(0)));
}

// Both sides of the cut would run them.
TEST_F(ParallelBackward, HooksOnInputsRunOnce) {
  Watched net;
  DataParallel parallel(net, kThree);
  const auto hooked = three_parts().set_requires_grad(true);
  WatchedImpl::doubles_input = true;
  parallel(hooked)[1].sum().backward();
  WatchedImpl::doubles_input = false;
  EXPECT_TRUE(at::equal(hooked.grad(), at::full({3, 2}, 6.0)));
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
