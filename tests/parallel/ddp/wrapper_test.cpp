// The typed skin: it stands where the module stood, whatever its forward looks like.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>
#include <torch/serialize.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <sstream>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/rank_threads.h"

namespace cohort::ddp {
namespace {

using test::Mlp;
using test::MlpImpl;
using test::run_rank_threads;

struct Output {
  at::Tensor logits;
  std::string note;
};
std::vector<at::Tensor> cohort_tensors(const Output& output) { return {output.logits}; }

struct ConstNoexceptImpl : torch::nn::Module {
  ConstNoexceptImpl() { weight = register_parameter("weight", torch::ones({1})); }
  at::Tensor forward(const at::Tensor& x) const noexcept { return x * weight; }
  at::Tensor weight;
};
TORCH_MODULE(ConstNoexcept);

struct DefaultsImpl : torch::nn::Module {
  DefaultsImpl() { weight = register_parameter("weight", torch::ones({1})); }
  at::Tensor forward(at::Tensor x, double scale = 3, bool negate = false) { return (negate ? -x : x) * weight * scale; }
  at::Tensor weight;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(3.0)}, {2, torch::nn::AnyValue(false)})
};
TORCH_MODULE(Defaults);

struct ManyOutputsImpl : torch::nn::Module {
  ManyOutputsImpl() {
    used = register_parameter("used", torch::ones({1}));
    unused = register_parameter("unused", torch::ones({1}));
  }
  std::tuple<at::Tensor, std::vector<at::Tensor>, std::optional<at::Tensor>, std::map<std::string, at::Tensor>> forward(
      at::Tensor x) {
    return {x, {x}, std::nullopt, {{"deep", x * used}}};
  }
  at::Tensor used, unused;
};
TORCH_MODULE(ManyOutputs);

struct OwnTypeImpl : torch::nn::Module {
  OwnTypeImpl() {
    used = register_parameter("used", torch::ones({1}));
    unused = register_parameter("unused", torch::ones({1}));
  }
  Output forward(at::Tensor x) { return {x * used, "hello"}; }
  at::Tensor used, unused;
};
TORCH_MODULE(OwnType);

struct OverloadedImpl : torch::nn::Module {
  OverloadedImpl() { weight = register_parameter("weight", torch::ones({1})); }
  at::Tensor forward(at::Tensor x) { return x * weight; }
  at::Tensor forward(at::Tensor x, at::Tensor y) { return (x + y) * weight; }
  at::Tensor weight;
};
TORCH_MODULE(Overloaded);

struct DerivedImpl : MlpImpl {};
TORCH_MODULE(Derived);

void on_one_rank(const std::function<void(const Options&)>& fn) {
  run_rank_threads(1, [&](int, const Group& group) { fn({.process_group = group}); });
}

TEST(Wrapper, TakesAnySignature) {
  on_one_rank([](const Options& options) {
    const auto x = torch::full({1}, 2.0);
    EXPECT_EQ(DistributedDataParallel(ConstNoexcept(), options)(x).item<float>(), 2);
    DistributedDataParallel defaults(Defaults(), options);
    EXPECT_EQ(defaults(x).item<float>(), 6);
    EXPECT_EQ(defaults(x, 5.0, true).item<float>(), -10);
    DistributedDataParallel overloaded(Overloaded(), options);
    EXPECT_EQ(overloaded(x).item<float>(), 2);
    EXPECT_EQ(overloaded->forward(x, x).item<float>(), 4);
    EXPECT_EQ(DistributedDataParallel(Derived(), options)(torch::ones({3, 8})).size(1), 4);
    DistributedDataParallel lstm(torch::nn::LSTM(4, 5), options);
    EXPECT_EQ(std::get<0>(lstm(torch::ones({2, 1, 4}))).size(2), 5);
    DistributedDataParallel attention(torch::nn::MultiheadAttention(4, 2), options);
    const auto sequence = torch::ones({2, 1, 4});
    EXPECT_EQ(std::get<0>(attention(sequence, sequence, sequence)).size(2), 4);
    DistributedDataParallel from_pointer(std::make_shared<MlpImpl>(), options);
    EXPECT_EQ(from_pointer(torch::ones({1, 8})).size(1), 4);
  });
}

TEST(Wrapper, TakesTheModuleInsideAHolderMessage) {
  on_one_rank([](const Options& options) {
    Mlp net;
    DistributedDataParallel ddp(*net, options);
    EXPECT_EQ(&ddp->module(), net.get());
    EXPECT_EQ(ddp(torch::ones({1, 8})).size(1), 4);
    auto* const alone = net.get();
    net = nullptr;
    EXPECT_EQ(&ddp->module(), alone) << "the wrapper shares it";
    EXPECT_EQ(ddp(torch::ones({1, 8})).size(1), 4);
    MlpImpl on_the_stack;
    try {
      DistributedDataParallel refused(on_the_stack, options);
      FAIL() << "it would dangle";
    } catch (const c10::ValueError& error) {
      EXPECT_STREQ(error.what_without_backtrace(),
                   "[cohort] DistributedDataParallel keeps the module that it wraps alive, but no std::shared_ptr owns "
                   "this one; make it with std::make_shared, or with its holder, such as torch::nn::Linear");
    }
  });
}

TEST(Wrapper, FindsTensorsInOutputsOfEveryShape) {
  on_one_rank([](Options options) {
    options.find_unused_parameters = true;
    DistributedDataParallel many(ManyOutputs(), options);
    for (int i = 0; i < 2; ++i) std::get<3>(many(torch::ones({1}))).at("deep").backward();
    EXPECT_FALSE(many->module().unused.grad().defined());
    DistributedDataParallel own(OwnType(), options);
    for (int i = 0; i < 2; ++i) {
      const auto output = own(torch::ones({1}));
      EXPECT_EQ(output.note, "hello");
      output.logits.backward();
    }
  });
}

TEST(Wrapper, RunsUnderDdpHoweverItIsCalled) {
  run_rank_threads(2, [](int rank, const Group& group) {
    ConstNoexcept net;
    DistributedDataParallel ddp(net, {.process_group = group});
    const auto x = torch::full({1}, rank + 1.0);
    const auto expect_mean = [&](const char* how) {
      if (net->weight.grad().item<float>() != 1.5) throw std::runtime_error(how);
      net->zero_grad();
    };
    ddp(x).backward();
    expect_mean("ddp(x)");
    ddp->forward(x).backward();
    expect_mean("ddp->forward(x)");
    torch::nn::Sequential sequential(ddp);
    sequential->forward(x).backward();
    expect_mean("in Sequential");
    torch::nn::AnyModule any(ddp);
    any.forward(x).backward();
    expect_mean("in AnyModule");
  });
}

TEST(Wrapper, SaysThatTheModuleWasTrainedWithoutItMessage) {
  testing::internal::CaptureStderr();
  run_rank_threads(2, [](int rank, const Group& group) {
    Mlp net;
    DistributedDataParallel ddp(net, {.process_group = group});
    const auto x = torch::full({1, 8}, rank + 1.0);
    for (int step = 0; step < 3; ++step) {
      {
        const auto local = ddp->no_sync();
        ddp(x).sum().backward();
      }
      const auto first = ddp(x).sum(), second = ddp(x).sum();
      (first + second).backward();
      ddp->eval();
      const torch::NoGradGuard no_grad;
      (void)net->forward(x);
      (void)ddp(x);
      ddp->train();
    }
  });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  run_rank_threads(2, [](int rank, const Group& group) {
    Mlp net;
    DistributedDataParallel ddp(net, {.process_group = group});
    ddp(torch::ones({1, 8})).sum().backward();
    if (rank == 1) ddp->module().forward(torch::ones({1, 8})).sum().backward();
  });
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "[cohort] warning: rank 1 of 2 has trained the module inside DistributedDataParallel without it: a backward pass "
      "came from a forward pass of the module itself, so its gradients stay on this rank and the ranks' models differ "
      "from now on. Call the wrapper instead: ddp(x) or ddp->forward(x)\n");
}

TEST(Wrapper, AnyModuleUsesDefaultArguments) {
  on_one_rank([](const Options& options) {
    torch::nn::AnyModule any(DistributedDataParallel(Defaults(), options));
    EXPECT_EQ(any.forward(torch::ones({1})).item<float>(), 3);
  });
}

TEST(Wrapper, OverloadsJoinContainersWhenTheSignatureIsGiven) {
  on_one_rank([](const Options& options) {
    DistributedDataParallel<OverloadedImpl, at::Tensor(at::Tensor)> ddp(Overloaded(), options);
    torch::nn::Sequential sequential(ddp);
    EXPECT_EQ(sequential->forward(torch::ones({1})).item<float>(), 1);
  });
}

TEST(Wrapper, NamesHaveNoPrefix) {
  on_one_rank([](const Options& options) {
    Mlp net;
    DistributedDataParallel ddp(net, options);
    EXPECT_EQ(ddp->named_parameters().keys(), net->named_parameters().keys());
    for (const auto& entry : ddp->named_parameters()) {
      EXPECT_TRUE(entry.value().is_same(net->named_parameters()[entry.key()]));
    }
    std::ostringstream text;
    text << *ddp;
    EXPECT_THAT(text.str(), testing::StartsWith("DistributedDataParallel("));
  });
}

TEST(Wrapper, TrainAndEvalReachTheInnerModule) {
  on_one_rank([](const Options& options) {
    Mlp net;
    DistributedDataParallel ddp(net, options);
    ddp->eval();
    EXPECT_FALSE(net->is_training());
    EXPECT_FALSE(net->first->is_training());
    EXPECT_FALSE(ddp->is_training());
    ddp->train();
    EXPECT_TRUE(net->first->is_training());
  });
}

// The archive that Python's wrapper would give: everything below "module".
struct PrefixedImpl : torch::nn::Module {
  PrefixedImpl() { module = register_module("module", Mlp()); }
  Mlp module{nullptr};
};
TORCH_MODULE(Prefixed);

TEST(Wrapper, LoadsArchivesWithAndWithoutPrefix) {
  on_one_rank([](const Options& options) {
    Mlp source;
    Prefixed prefixed;
    prefixed->module = source;
    std::stringstream plain_file, prefixed_file;
    torch::save(source, plain_file);
    {
      torch::serialize::OutputArchive outer, inner;
      source->save(inner);
      outer.write("module", inner);
      outer.save_to(prefixed_file);
    }
    for (auto* file : {&plain_file, &prefixed_file}) {
      DistributedDataParallel ddp(Mlp(), options);
      torch::serialize::InputArchive archive;
      archive.load_from(*file);
      ddp->load(archive);
      EXPECT_TRUE(at::equal(ddp->module().first->weight, source->first->weight));
    }
    DistributedDataParallel ddp(source, options);
    std::stringstream own_file;
    torch::save(ddp, own_file);
    Mlp copy;
    torch::load(copy, own_file);
    EXPECT_TRUE(at::equal(copy->third->bias, source->third->bias));
  });
}

TEST(Wrapper, CannotBeClonedMessage) {
  on_one_rank([](const Options& options) {
    DistributedDataParallel ddp(Mlp(), options);
    try {
      ddp->clone();
      FAIL();
    } catch (const c10::Error& error) {
      EXPECT_STREQ(error.what_without_backtrace(),
                   "[cohort] DistributedDataParallel cannot be cloned; clone the inner module() and wrap the copy");
    }
  });
}

}  // namespace
}  // namespace cohort::ddp
