// What DistributedDataParallel does around forward: checks, broadcasts, buffers, no_sync.
#include "cohort/parallel/ddp/replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/inline_engine.h"
#include "tests/support/rank_threads.h"

namespace cohort::ddp {
namespace {

using test::Mlp;
using test::run_rank_threads;

template <class Fn>
std::string replica_error(Fn fn) {
  try {
    fn();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "(no error)";
}

void require_equal(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  if (!at::equal(actual, expected)) throw std::runtime_error(c10::str(what, ": expected ", expected, ", got ", actual));
}

struct BufferedImpl : torch::nn::Module {
  BufferedImpl() {
    weight = register_parameter("weight", torch::zeros({2}));
    seen = register_buffer("seen", torch::zeros({1}));
  }
  at::Tensor forward(at::Tensor x) { return x * weight; }
  at::Tensor weight, seen;
};
TORCH_MODULE(Buffered);

TEST(Replica, StartsFromRankZerosParametersAndBuffers) {
  run_rank_threads(3, [](int rank, const Group& group) {
    Buffered net;
    net->weight.data().fill_(rank + 1);
    net->seen.fill_(rank + 10);
    DistributedDataParallel ddp(net, {.process_group = group});
    require_equal(net->weight.detach(), torch::ones({2}), "parameter");
    require_equal(net->seen, torch::full({1}, 10.0), "buffer");
  });
}

TEST(Replica, InitSyncOffLeavesRanksAsTheyAre) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Buffered net;
    net->weight.data().fill_(rank + 1);
    DistributedDataParallel ddp(net, {.process_group = group, .init_sync = false});
    require_equal(net->weight.detach(), torch::full({2}, rank + 1.0), "parameter");
  });
}

TEST(Replica, BuffersFollowRankZeroBeforeEachSynchronizedForward) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Buffered net;
    DistributedDataParallel ddp(net, {.process_group = group});
    const auto x = torch::ones({2});
    const auto forward_with = [&](double value) {
      net->seen.fill_(value + rank);
      return ddp(x);
    };
    forward_with(5).sum().backward();
    require_equal(net->seen, torch::full({1}, 5.0), "first forward");
    {
      const auto local = ddp->no_sync();
      forward_with(7).sum().backward();
      require_equal(net->seen, torch::full({1}, 7.0), "the forward before was synchronized");
    }
    forward_with(9).sum().backward();
    require_equal(net->seen, torch::full({1}, 9.0 + rank), "the forward before was local");
    forward_with(11).sum().backward();
    require_equal(net->seen, torch::full({1}, 11.0), "synchronized again");
  });
}

// The future is waited for at the end of backward, when its value replaces what the ranks had.
TEST(Replica, BufferHooksTakeThePlaceOfTheBroadcast) {
  for (const auto engine : {Engine::kCohort, Engine::kC10d, kInline}) {
    for (const auto location : {BufferCommHookLocation::kPreForward, BufferCommHookLocation::kPostForward}) {
      run_rank_threads(2, [&](int rank, const Group& group) {
        Buffered net;
        DistributedDataParallel ddp(net, {.process_group = group, .engine = engine});
        int num_calls = 0;
        const auto hook = [&](const Group& state, const NamedBuffers& buffers) {
          ++num_calls;
          if (buffers.size() != 1 || buffers.front().first != "seen") throw std::runtime_error("other buffers");
          auto buffer = buffers.front().second;
          auto work = all_reduce(buffer, {.op = ReduceOp::MAX, .group = state, .async_op = true});
          return std::vector<CommHookFuture>{work->getFuture()->then(
              [buffer](c10::ivalue::Future&) {
                buffer.add_(100);
                return c10::IValue(buffer);
              },
              c10::TensorType::get())};
        };
        ddp->register_buffer_comm_hook(group, hook, location);
        net->seen.fill_(rank + 5);
        ddp(torch::ones({2})).sum().backward();
        require_equal(net->seen, torch::full({1}, 106.0), "after the hook");
        if (num_calls != 1) throw std::runtime_error(c10::str(num_calls, " calls"));
      });
    }
  }
}

TEST(Replica, ForwardSyncBuffersOffLeavesBuffersLocal) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Buffered net;
    DistributedDataParallel ddp(net, {.process_group = group, .forward_sync_buffers = false});
    net->seen.fill_(rank);
    ddp(torch::ones({2})).sum().backward();
    require_equal(net->seen, torch::full({1}, static_cast<double>(rank)), "buffer");
  });
}

TEST(Replica, NoSyncAccumulatesUntilASynchronizedStep) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Buffered net;
    DistributedDataParallel ddp(net, {.process_group = group});
    const auto x = torch::full({2}, rank + 1.0);
    {
      const auto local = ddp->no_sync();
      ddp(x).sum().backward();
      require_equal(net->weight.grad(), x, "local gradient");
      const torch::NoGradGuard no_grad;
      ddp(x);
    }
    ddp(x).sum().backward();
    require_equal(net->weight.grad(), torch::full({2}, 3.0), "mean of both ranks' sums");
  });
}

TEST(Replica, EvaluationUnderNoGradNeedsNoBackward) {
  run_rank_threads(2, [](int, const Group& group) {
    Mlp net;
    DistributedDataParallel ddp(net, {.process_group = group});
    for (int i = 0; i < 3; ++i) {
      {
        const torch::NoGradGuard no_grad;
        ddp(torch::ones({1, 8}));
        ddp(torch::ones({1, 8}));
      }
      ddp(torch::ones({1, 8})).sum().backward();
    }
  });
}

TEST(Replica, ConstructorRefusalsMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    Mlp frozen;
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    EXPECT_EQ(
        replica_error([&] { DistributedDataParallel ddp(frozen, {.process_group = group}); }),
        "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.");
    Mlp net;
    EXPECT_EQ(replica_error([&] {
                DistributedDataParallel ddp(
                    net, {.device_ids = {c10::Device("cuda:0"), c10::Device("cuda:1")}, .process_group = group});
              }),
              "device_ids can only be None or contain a single element.");
    EXPECT_EQ(
        replica_error(
            [&] { DistributedDataParallel ddp(net, {.device_ids = {c10::Device("cpu")}, .process_group = group}); }),
        "DistributedDataParallel device_ids and output_device arguments only work with "
        "single-device/multiple-device "
        "GPU modules or CPU modules, but got device_ids [cpu], output_device None, and module parameters {'cpu'}.");
    Mlp split;
    split->register_parameter("elsewhere", torch::empty({1}, c10::Device("meta")));
    EXPECT_EQ(replica_error([&] { DistributedDataParallel ddp(split, {.process_group = group}); }),
              "DistributedDataParallel's input module must be on the same type of devices, but input module parameters "
              "locate in {'cpu', 'meta'}.");
  });
}

TEST(Replica, FrozenParametersAreSynchronizedButNotReduced) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Mlp net;
    net->first->weight.set_requires_grad(false);
    net->first->weight.fill_(rank + 1);
    DistributedDataParallel ddp(net, {.process_group = group});
    require_equal(net->first->weight, torch::ones({16, 8}), "frozen parameter");
    ddp(torch::ones({1, 8})).sum().backward();
    if (net->first->weight.grad().defined()) throw std::runtime_error("a frozen parameter got a gradient");
  });
}

TEST(Replica, SparseEmbeddingsAreRecognized) {
  run_rank_threads(2, [](int rank, const Group& group) {
    torch::nn::Sequential net(torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true)),
                              torch::nn::Linear(2, 1));
    DistributedDataParallel<torch::nn::SequentialImpl> ddp(net, {.process_group = group});
    ddp(torch::tensor({rank, 3})).sum().backward();
    if (!net->parameters()[0].grad().is_sparse()) throw std::runtime_error("the gradient is not sparse");
  });
}

TEST(Replica, IgnoredParametersAndBuffersStayEachRanksOwn) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Mlp net;
    net->first->bias.data().fill_(rank);
    net->second->bias.data().fill_(rank);
    const auto seen = net->second->register_buffer("seen", torch::full({1}, rank));
    Options options;
    options.process_group = group;
    options.parameters_and_buffers_to_ignore = {"second.bias", "second.seen"};
    DistributedDataParallel ddp(net, options);
    require_equal(net->first->bias.detach(), torch::zeros({16}), "exchanged");
    require_equal(net->second->bias.detach(), torch::full({16}, 1.0 * rank), "ignored");
    (ddp(torch::ones({1, 8})).sum() * 0 + (net->first->bias.sum() + net->second->bias.sum()) * (rank + 1)).backward();
    require_equal(net->first->bias.grad(), torch::full({16}, 1.5), "reduced");
    require_equal(net->second->bias.grad(), torch::full({16}, rank + 1.0), "not reduced");
    ddp(torch::ones({1, 8}));
    require_equal(seen, torch::full({1}, rank), "buffer");
  });
}

}  // namespace
}  // namespace cohort::ddp
