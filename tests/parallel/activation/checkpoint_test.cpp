// What PyTorch's own tests of torch.utils.checkpoint pin down, and what C++ adds to it. The order of runs and the texts beside
// Python's: tests/e2e/parallel/checkpoint_test.py.
#include "cohort/parallel/activation/checkpoint.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>

#include "cohort/parallel/activation/saved_tensor_hooks.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using activation::checkpoint;
using activation::checkpoint_sequential;
using activation::TensorFunction;
using test::error_of;
using testing::HasSubstr;

struct Result {
  std::vector<at::Tensor> values;
  bool operator==(const Result& other) const {
    if (values.size() != other.values.size()) return false;
    for (size_t i = 0; i < values.size(); ++i) {
      if (!at::equal(values[i], other.values[i])) return false;
    }
    return true;
  }
};

torch::nn::Sequential dropout_net() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(8, 16), torch::nn::Tanh(), torch::nn::Dropout(0.5),
                               torch::nn::Linear(16, 4));
}

// The loss, every gradient, and what the generator gives next.
template <class Run>
Result result_of(const Run& run, bool input_requires_grad = true) {
  auto net = dropout_net();
  torch::manual_seed(11);
  const auto x = torch::randn({6, 8}, at::requires_grad(input_requires_grad));
  const auto loss = run(net, x).square().sum();
  at::rand({3});
  loss.backward();
  Result result{{loss.detach(), at::rand({2})}};
  if (input_requires_grad) result.values.push_back(x.grad());
  for (const auto& parameter : net->parameters()) result.values.push_back(parameter.grad());
  return result;
}

at::Tensor plain(torch::nn::Sequential& net, const at::Tensor& x) { return net->forward(x); }
auto checkpointed(CheckpointOptions options) {
  return [options](torch::nn::Sequential& net, const at::Tensor& x) {
    return checkpoint(
        options, [net](const at::Tensor& input) mutable { return net->forward(input); }, x);
  };
}

TEST(Checkpoint, IsThePlainRunToTheBit) {
  const auto expected = result_of(plain);
  EXPECT_EQ(result_of(checkpointed({})), expected);
  EXPECT_EQ(result_of(checkpointed({.early_stop = false})), expected);
  EXPECT_EQ(result_of(checkpointed({.use_reentrant = true})), expected);
  EXPECT_EQ(result_of(checkpointed({}), false), result_of(plain, false));
}

TEST(Checkpoint, WithoutItsRandomNumbersDropoutDiffers) {
  const auto expected = result_of(plain);
  EXPECT_FALSE(result_of(checkpointed({.preserve_rng_state = false})) == expected);
  EXPECT_FALSE(result_of(checkpointed({.use_reentrant = true, .preserve_rng_state = false})) == expected);
}

TEST(Checkpoint, FreesWhatIsSavedUntilBackwardAndAfterIt) {
  for (const bool is_checkpointed : {false, true}) {
    const auto x = torch::rand({100}, at::requires_grad());
    std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> intermediate;
    const auto function = [&](const at::Tensor& input) {
      at::Tensor y = input;
      for (int i = 0; i < 4; ++i) {
        y = y.sin().exp();
        intermediate.emplace_back(y.storage().getWeakStorageImpl());
      }
      return y.square();
    };
    const auto num_alive = [&] {
      return std::count_if(intermediate.begin(), intermediate.end(), [](const auto& one) { return !one.expired(); });
    };
    const auto loss = (is_checkpointed ? checkpoint(function, x) : function(x)).sum();
    EXPECT_EQ(num_alive(), is_checkpointed ? 0 : 4);
    loss.backward({}, /*retain_graph=*/true);
    EXPECT_EQ(num_alive(), is_checkpointed ? 0 : 4);
    EXPECT_EQ(intermediate.size(), is_checkpointed ? 8 : 4);
  }
}

// A function whose runs are counted: x -> sin(exp(x)), and a last operation that saves nothing.
struct Counted {
  int num_started = 0;
  int num_finished = 0;
  at::Tensor operator()(const at::Tensor& x) {
    ++num_started;
    const auto y = x.exp().sin();
    ++num_finished;
    return y + 1;
  }
};

TEST(Checkpoint, RunsAgainOncePerPassAndStopsEarly) {
  for (const bool early_stop : {true, false}) {
    Counted counted;
    const auto x = torch::rand({3}, at::requires_grad());
    const auto y = checkpoint({.early_stop = early_stop}, std::ref(counted), x).sum();
    EXPECT_EQ(counted.num_started, 1);
    for (int pass = 1; pass <= 3; ++pass) {
      y.backward({}, /*retain_graph=*/true);
      EXPECT_EQ(counted.num_started, 1 + pass);
      EXPECT_EQ(counted.num_finished, early_stop ? 1 : 1 + pass);
    }
    EXPECT_TRUE(at::allclose(x.grad(), 3 * x.exp().cos() * x.exp()));
  }
}

TEST(Checkpoint, EarlyStopOfTheThreadGoesBeforeTheOption) {
  Counted counted;
  const auto x = torch::rand({3}, at::requires_grad());
  at::Tensor y;
  {
    const CheckpointEarlyStop no(false);
    y = checkpoint(std::ref(counted), x);
  }
  y.sum().backward();
  EXPECT_EQ(counted.num_finished, 2);
  checkpoint(std::ref(counted), x).sum().backward();
  EXPECT_EQ(counted.num_finished, 3);
}

TEST(Checkpoint, PartOfTheGraph) {
  const auto x = torch::rand({3}, at::requires_grad());
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> seen;
  int num_runs = 0;
  const auto outputs = checkpoint(
      [&](const at::Tensor& input) {
        ++num_runs;
        const auto first = input.exp();
        seen.emplace_back(first.storage().getWeakStorageImpl());
        return std::tuple(first.sin(), input.cos());
      },
      x);
  const auto gradient = torch::autograd::grad({std::get<1>(outputs).sum()}, {x}, {}, /*retain_graph=*/true).front();
  EXPECT_TRUE(at::allclose(gradient, -x.sin()));
  EXPECT_EQ(num_runs, 2);
  EXPECT_TRUE(seen[1].expired());  // made again, not asked for, and not kept
  std::get<0>(outputs).sum().backward();
  EXPECT_EQ(num_runs, 3);
  EXPECT_TRUE(at::allclose(x.grad(), x.exp().cos() * x.exp()));
}

TEST(Checkpoint, TakesAndReturnsTreesOfTensors) {
  using Map = std::map<std::string, at::Tensor>;
  const auto function = [](const std::vector<at::Tensor>& list, const Map& map, std::optional<at::Tensor> maybe,
                           double scale, const at::Tensor& undefined) {
    TORCH_CHECK(!undefined.defined());
    return std::tuple(list[0].exp() * scale, std::vector<at::Tensor>{list[1].sin(), map.at("b").cos()},
                      *maybe * list[0]);
  };
  for (const bool use_reentrant : {false, true}) {
    std::vector<std::vector<at::Tensor>> gradients;
    for (const bool is_checkpointed : {false, true}) {
      torch::manual_seed(1);
      std::vector<at::Tensor> x;
      for (int i = 0; i < 4; ++i) x.push_back(torch::rand({3}, at::requires_grad()));
      // The reentrant variant sees tensors at every depth here; in Python it sees arguments only.
      const auto run = [&](auto... inputs) {
        return is_checkpointed ? checkpoint({.use_reentrant = use_reentrant}, function, inputs...)
                               : function(inputs...);
      };
      const auto [first, second, third] =
          run(std::vector<at::Tensor>{x[0], x[1]}, Map{{"b", x[2]}}, std::optional(x[3]), 2.5, at::Tensor());
      (first + second[0] * second[1] + third).sum().backward();
      auto& found = gradients.emplace_back();
      for (const auto& tensor : x) found.push_back(tensor.grad());
    }
    EXPECT_EQ(Result{gradients[1]}, Result{gradients[0]});
  }
}

TEST(Checkpoint, NestedOnesGoOutwardsUntilTensorsAreThere) {
  std::string order;
  const auto innermost = [&](const at::Tensor& x) {
    order += "c";
    return x.exp().sin();
  };
  const auto middle = [&](const at::Tensor& x) {
    order += "b";
    return checkpoint(innermost, x.sin()).cos();
  };
  const auto x = torch::rand({3}, at::requires_grad());
  const auto y = checkpoint(
      [&](const at::Tensor& input) {
        order += "a";
        return checkpoint(middle, input.cos()).sin();
      },
      x);
  EXPECT_EQ(order, "abc");
  y.sum().backward();
  const auto expected = x.detach().requires_grad_();
  expected.cos().sin().exp().sin().cos().sin().sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), expected.grad()));
  EXPECT_EQ(order, "abcabcbcc");
}

TEST(Checkpoint, BackwardInsideOfTheFunction) {
  for (const bool early_stop : {true, false}) {
    const auto function = [](const at::Tensor& x) {
      const auto z = x.sin().cos();
      const auto inner = torch::autograd::grad({z.sum()}, {x}).front();
      return x.cos() * inner;
    };
    const auto x = torch::rand({3}, at::requires_grad());
    checkpoint({.early_stop = early_stop}, function, x).sum().backward();
    const auto expected = x.detach().requires_grad_();
    function(expected).sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), expected.grad()));
  }
}

TEST(Checkpoint, GradientsOfGradients) {
  const auto x = torch::rand({3}, at::requires_grad());
  const auto y = checkpoint([](const at::Tensor& input) { return input.exp().sin(); }, x);
  const auto gradient = torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true).front();
  gradient.square().sum().backward();
  const auto expected = x.detach().requires_grad_();
  torch::autograd::grad({expected.exp().sin().sum()}, {expected}, {}, true, true).front().square().sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), expected.grad()));
}

TEST(Checkpoint, AutocastIsAsInForward) {
  const auto weight = torch::rand({4, 4}, at::requires_grad());
  std::vector<c10::ScalarType> dtypes;
  const auto function = [&](const at::Tensor& x) {
    const auto y = at::matmul(x, weight);
    dtypes.push_back(y.scalar_type());
    return y.exp();
  };
  for (const bool use_reentrant : {false, true}) {
    const auto x = torch::rand({4, 4}, at::requires_grad());
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const auto y = checkpoint({.use_reentrant = use_reentrant}, function, x);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    y.sum().backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  }
  EXPECT_EQ(dtypes, std::vector<c10::ScalarType>(4, at::kBFloat16));
}

TEST(Checkpoint, WithoutGradientsItJustRuns) {
  Counted counted;
  const at::NoGradGuard no_grad;
  const auto x = torch::rand({3}, at::requires_grad());
  EXPECT_FALSE(checkpoint(std::ref(counted), x).requires_grad());
  EXPECT_EQ(counted.num_started, 1);
}

TEST(Checkpoint, ErrorsOfTheFunctionLeaveEverythingAsItWas) {
  const auto x = torch::rand({3}, at::requires_grad());
  bool fails = true;
  const auto function = [&](const at::Tensor& input) {
    const auto y = input.exp();
    if (fails) throw std::logic_error("this time");
    at::rand({1});
    return y.sin();
  };
  EXPECT_THROW(checkpoint(function, x), std::logic_error);
  fails = false;
  const auto y = checkpoint(function, x).sum();
  fails = true;
  torch::manual_seed(8);
  EXPECT_THROW(y.backward({}, true), std::logic_error);
  EXPECT_FALSE(x.grad().defined());
  const auto next = at::rand({1});
  torch::manual_seed(8);
  EXPECT_TRUE(at::equal(next, at::rand({1})));
  fails = false;
  y.backward();  // another pass is another try
  EXPECT_TRUE(at::allclose(x.grad(), x.exp().cos() * x.exp()));
  int num_saved = 0;
  const SavedTensorHooks hooks([&](const at::Tensor& saved) -> UnpackHook {
    ++num_saved;
    return [kept = saved.detach()] { return kept; };
  });
  x.exp();
  EXPECT_EQ(num_saved, 1);
}

constexpr const char* kTip =
    "\nTip: To see a more detailed error message, pass CheckpointOptions{.debug = true} to "
    "cohort::activation::checkpoint.\n";

// Saves one tensor in its first run, and what `later` says in others.
std::string error_of_change(const CheckpointOptions& options, const std::function<at::Tensor(const at::Tensor&)>& first,
                            const std::function<at::Tensor(const at::Tensor&)>& later) {
  int num_runs = 0;
  const auto x = torch::rand({2, 3}, at::requires_grad());
  const auto y = checkpoint(
      options, [&](const at::Tensor& input) { return num_runs++ ? later(input) : first(input); }, x);
  try {
    y.sum().backward();
  } catch (const CheckpointError& error) {
    return error.what_without_backtrace();
  }
  return "(no error)";
}

TEST(Checkpoint, AnotherNumberOfTensorsMessage) {
  const auto one = [](const at::Tensor& x) { return x.exp(); };
  const auto two = [](const at::Tensor& x) { return x.exp().exp(); };
  EXPECT_EQ(error_of_change({}, two, one),
            "torch.utils.checkpoint: A different number of tensors was saved during the original forward and "
            "recomputation.\nNumber of tensors saved during forward: 2\nNumber of tensors saved during recomputation: "
            "1.\n" +
                std::string(kTip));
  EXPECT_EQ(error_of_change({.early_stop = false}, one, two),
            "torch.utils.checkpoint: trying to save more tensors during recomputation than during the original forward "
            "pass.\n" +
                std::string(kTip));
  EXPECT_EQ(error_of_change({}, one, two), "(no error)");
}

TEST(Checkpoint, OtherMetadataMessage) {
  const auto first = [](const at::Tensor& x) { return x.exp().sin().sum(); };
  const auto later = [](const at::Tensor& x) { return x.to(at::kDouble).exp()[0].sin().sum(); };
  EXPECT_EQ(
      error_of_change({}, first, later),
      "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the "
      "forward pass.\ntensor at position 0:\nsaved metadata: {'shape': torch.Size([2, 3]), 'dtype': "
      "torch.float32, 'device': device(type='cpu')}\nrecomputed metadata: {'shape': torch.Size([2, 3]), 'dtype': "
      "torch.float64, 'device': device(type='cpu')}\ntensor at position 1:\nsaved metadata: {'shape': "
      "torch.Size([2, 3]), 'dtype': torch.float32, 'device': device(type='cpu')}\nrecomputed metadata: {'shape': "
      "torch.Size([3]), 'dtype': torch.float64, 'device': device(type='cpu')}\n.\n" +
          std::string(kTip));
}

TEST(Checkpoint, DeterminismCheckCanBeSwitchedOff) {
  const auto first = [](const at::Tensor& x) { return x.exp(); };
  const auto later = [](const at::Tensor& x) { return x.narrow(0, 0, 1).exp(); };
  EXPECT_THAT(error_of_change({}, first, later), HasSubstr("different metadata"));
  EXPECT_EQ(error_of_change({.determinism_check = DeterminismCheck::kNone}, first, later), "(no error)");
}

TEST(Checkpoint, DebugListsOperatorsMessage) {
  const auto text = error_of_change(
      {.debug = true}, [](const at::Tensor& x) { return x.exp().sin(); }, [](const at::Tensor& x) { return x.cos(); });
  const auto forward = text.find("Operations executed during the original forward:\n\naten::exp\naten::sin\n");
  const auto again = text.find("Operations executed during recomputation:\n\naten::cos\n");
  EXPECT_NE(forward, std::string::npos) << text;
  EXPECT_NE(again, std::string::npos) << text;
  EXPECT_EQ(text.find("Tip:"), std::string::npos);
}

TEST(Checkpoint, AskedTwiceInOnePassMessage) {
  struct Twice : torch::autograd::Function<Twice> {
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
      context->save_for_backward({x});
      return x * 2;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
      context->get_saved_variables();
      context->get_saved_variables();
      return gradients;
    }
  };
  const auto x = torch::rand({3}, at::requires_grad());
  const auto y = checkpoint([](const at::Tensor& input) { return Twice::apply(input); }, x);
  EXPECT_THAT(
      error_of([&] { y.sum().backward(); }),
      HasSubstr("torch.utils.checkpoint: Unpack is being triggered for a tensor that was already unpacked once. "
                "If you are calling ctx.saved_tensors in backward, make sure to do so only once."));
}

TEST(Checkpoint, InputsThatChangedAreAnError) {
  const auto x = torch::rand({3}, at::requires_grad());
  const auto input = x * 2;
  const auto y = checkpoint([](const at::Tensor& value) { return value.exp(); }, input);
  input.add_(1);
  EXPECT_THAT(
      error_of([&] { y.sum().backward(); }),
      HasSubstr("one of the variables needed for gradient computation has been modified by an inplace operation"));
}

// Two threads' passes over one graph, each of which must run the function for itself.
TEST(Checkpoint, PassesOfSeveralThreads) {
  const auto x = torch::rand({64}, at::requires_grad());
  const auto y = checkpoint([](const at::Tensor& input) { return input.exp().sin().exp(); }, x).sum();
  const auto expected = torch::autograd::grad({y}, {x}, {}, true).front();
  std::vector<std::thread> threads;
  std::atomic<int> num_right{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        if (at::equal(torch::autograd::grad({y}, {x}, {}, true).front(), expected)) ++num_right;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(num_right, 40);
}

TEST(ReentrantCheckpoint, MistakesMessages) {
  const auto x = torch::rand({3}, at::requires_grad());
  const CheckpointOptions reentrant{.use_reentrant = true};
  const auto exp = [](const at::Tensor& input) { return input.exp(); };
  const auto y = checkpoint(reentrant, exp, x).sum();
  EXPECT_EQ(error_of([&] { torch::autograd::grad({y}, {x}); }),
            "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
            "parameter to .backward(). To resolve this error, you can either set use_reentrant=False, or call "
            ".backward() without passing the `inputs` argument.");
  const auto constant = checkpoint(
      reentrant, [](const at::Tensor& input) { return input.detach().exp(); }, x);
  EXPECT_EQ(error_of([&] { constant.sum().backward(); }),
            "none of output has requires_grad=True, this checkpoint() is not necessary");
  EXPECT_EQ(error_of([&] { checkpoint({.use_reentrant = true, .debug = true}, exp, x); }),
            "Passing `context_fn` or `debug` is only supported when use_reentrant=False.");
}

TEST(ReentrantCheckpoint, NoInputWithAGradientMessage) {
  struct Kept : c10::WarningHandler {
    void process(const c10::Warning& warning) override { text = warning.msg(); }
    std::string text;
  } kept;
  const c10::WarningUtils::WarningHandlerGuard guard(&kept);
  const auto weight = torch::rand({3}, at::requires_grad());
  const auto y = checkpoint(
      {.use_reentrant = true}, [&](const at::Tensor& x) { return x * weight; }, torch::rand({3}));
  EXPECT_EQ(kept.text, "None of the inputs have requires_grad=True. Gradients will be None");
  EXPECT_FALSE(y.requires_grad());
}

TEST(CheckpointSequential, EveryNumberOfSegments) {
  const auto expected = result_of(plain);
  for (int64_t segments = 1; segments <= 4; ++segments) {
    for (const bool use_reentrant : {false, true}) {
      EXPECT_EQ(result_of([&](torch::nn::Sequential& net, const at::Tensor& x) {
                  return checkpoint_sequential(*net, segments, x, {.use_reentrant = use_reentrant});
                }),
                expected)
          << segments << use_reentrant;
    }
  }
}

TEST(CheckpointSequential, TheLastSegmentHasTheRestAndRunsOnce) {
  std::vector<int> num_runs(5);
  std::vector<TensorFunction> functions;
  for (size_t i = 0; i < 5; ++i) {
    functions.emplace_back([&num_runs, i](const at::Tensor& x) {
      ++num_runs[i];
      return x.sin();
    });
  }
  const auto x = torch::rand({3}, at::requires_grad());
  checkpoint_sequential(functions, 2, x).sum().backward();
  EXPECT_EQ(num_runs, (std::vector<int>{2, 2, 1, 1, 1}));
}

TEST(CheckpointSequential, SegmentsThatCannotBeMessage) {
  const std::vector<TensorFunction> functions(3, [](const at::Tensor& x) { return x; });
  for (const int64_t segments : {0, 4}) {
    EXPECT_EQ(error_of([&] { checkpoint_sequential(functions, segments, torch::rand({1})); }),
              "[cohort] checkpoint_sequential needs 1 <= segments <= number of functions, got segments " +
                  std::to_string(segments) + " and 3 functions");
  }
}

}  // namespace
}  // namespace cohort
