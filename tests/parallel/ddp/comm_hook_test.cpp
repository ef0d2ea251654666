// Communication hooks: what they see, what they may give back and when, and the errors. Numbers are compared with Python's
// hooks in tests/e2e/parallel/ddp_test.py.
#include "cohort/parallel/ddp/settings/comm_hook.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <thread>

#include "cohort/comm/error/exception_text.h"
#include "cohort/parallel/ddp/comm_hook_type.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/ddp/hooks/all_reduce_hook.h"
#include "cohort/parallel/ddp/hooks/compress_hooks.h"
#include "cohort/parallel/ddp/hooks/noop_hook.h"
#include "cohort/parallel/ddp/hooks/post_local_sgd_hook.h"
#include "cohort/parallel/ddp/hooks/quantization_hooks.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/inline_engine.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::ddp {
namespace {

using test::error_of;
using test::run_rank_threads;

// Weights whose gradients are known: of weight i, by `factor`, factor * (i + 1) * [1, 2, 3, ...].
struct Weights {
  explicit Weights(const std::vector<int64_t>& sizes) {
    for (const auto size : sizes) tensors.push_back(torch::zeros({size}, at::requires_grad()));
  }
  at::Tensor gradient(size_t i, double factor) const {
    return torch::arange(1.0, static_cast<double>(tensors[i].numel() + 1)) * factor * static_cast<double>(i + 1);
  }
  at::Tensor loss(double factor) const {
    auto sum = torch::zeros({});
    for (size_t i = 0; i < tensors.size(); ++i) sum = sum + (tensors[i] * gradient(i, factor)).sum();
    return sum;
  }
  void step(Reducer& reducer, double factor) const {
    for (const auto& tensor : tensors) tensor.mutable_grad().reset();
    reducer.prepare();
    loss(factor).backward();
  }
  void require_gradients(double factor, double tolerance = 0) const {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].grad().defined() && at::allclose(tensors[i].grad(), gradient(i, factor), tolerance, tolerance)) {
        continue;
      }
      throw std::runtime_error(c10::str("weight ", i, ": expected ", gradient(i, factor), ", got ", tensors[i].grad()));
    }
  }
  size_t place_of(const at::Tensor& tensor) const {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].is_same(tensor)) return i;
    }
    throw std::runtime_error("not one of the weights");
  }
  std::vector<at::Tensor> tensors;
};

ReducerOptions small_buckets(const Group& group, Engine engine = Engine::kCohort) {
  ReducerOptions options;
  options.process_group = group;
  options.bucket_cap_mb = 1e-6;
  options.engine = engine;
  return options;
}

// On two ranks with factors 1 and 3 the average has factor 2.
double factor_of(int rank) { return rank == 0 ? 1 : 3; }

class CommHookOfEngine : public testing::TestWithParam<Engine> {};

TEST_P(CommHookOfEngine, SeesTheBucketsInOrderAndUndivided) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const Weights weights({3, 5, 2});
    Reducer reducer(weights.tensors, small_buckets(group, GetParam()));
    std::vector<size_t> seen;
    const auto num_buckets = std::make_shared<size_t>(1);
    const auto hook = [&](const std::shared_ptr<size_t>& count, GradBucket& bucket) {
      seen.push_back(bucket.index());
      REQUIRE(bucket.is_last() == (bucket.index() + 1 == *count));
      REQUIRE(bucket.buffer().dim() == 1);
      const auto gradients = bucket.gradients();
      REQUIRE(gradients.size() == bucket.parameters().size());
      for (size_t i = 0; i < gradients.size(); ++i) {
        REQUIRE(at::equal(gradients[i], weights.gradient(weights.place_of(bucket.parameters()[i]), factor_of(rank))));
      }
      return allreduce_hook(group, bucket);
    };
    reducer.register_comm_hook(num_buckets, hook);
    for (int step = 0; step < 3; ++step) {
      seen.clear();
      reducer.prepare_forward();
      *num_buckets = reducer.buckets().size();
      weights.step(reducer, factor_of(rank));
      weights.require_gradients(2);
      std::vector<size_t> expected(*num_buckets);
      std::iota(expected.begin(), expected.end(), 0);
      REQUIRE(seen == expected);
    }
    REQUIRE(GetParam() == kInline || *num_buckets == 3);
  });
}

// The value may be another tensor, of another dtype or shape, in a list; it may come late and from another thread.
TEST_P(CommHookOfEngine, FutureReplacesTheBucket) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const Weights weights({3, 5, 2});
    Reducer reducer(weights.tensors, small_buckets(group, GetParam()));
    std::vector<std::thread> threads;
    reducer.register_comm_hook(nullptr, [&](std::nullptr_t, GradBucket& bucket) {
      auto future = c10::make_intrusive<c10::ivalue::Future>(c10::AnyType::get());
      const auto value = (bucket.buffer() * (10.0 / factor_of(rank))).to(at::kDouble);
      threads.emplace_back([future, value, as_list = bucket.index() % 2 == 1] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        future->markCompleted(as_list ? c10::IValue(std::vector<at::Tensor>{value}) : c10::IValue(value));
      });
      return future;
    });
    for (int step = 0; step < 3; ++step) {
      weights.step(reducer, factor_of(rank));
      weights.require_gradients(10, 1e-6);
    }
    for (auto& thread : threads) thread.join();
  });
}

TEST_P(CommHookOfEngine, RunsOnOneRankToo) {
  run_rank_threads(1, [](int, const Group& group) {
    for (const int steps_before : {0, 1, 3}) {
      const Weights weights({3, 5});
      Reducer reducer(weights.tensors, small_buckets(group, GetParam()));
      for (int step = 0; step < steps_before; ++step) {
        weights.step(reducer, 1);
        weights.require_gradients(1);
      }
      reducer.register_comm_hook(5.0, [](double factor, GradBucket& bucket) {
        bucket.buffer().mul_(factor);
        return completed_future(bucket.buffer());
      });
      for (int step = 0; step < 3; ++step) {
        weights.step(reducer, 1);
        weights.require_gradients(5);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Engines, CommHookOfEngine, testing::Values(Engine::kCohort, Engine::kC10d, kInline));

CommHookFuture compressed_and_doubled(const Group& group, GradBucket& bucket) {
  REQUIRE(bucket.buffer().scalar_type() == at::kHalf);
  bucket.buffer().mul_(2);
  return allreduce_hook(group, bucket);
}

TEST(CommHook, WrapperGivesTheHookAHalfPrecisionBucket) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const Weights weights({3, 5});
    Reducer reducer(weights.tensors, small_buckets(group));
    reducer.register_comm_hook(group, fp16_compress_wrapper(compressed_and_doubled));
    for (int step = 0; step < 3; ++step) {
      weights.step(reducer, factor_of(rank));
      weights.require_gradients(4);
      REQUIRE(weights.tensors[0].grad().scalar_type() == at::kFloat);
    }
  });
}

TEST(CommHook, QuantizedGradientsAreWithinAStepOfTheirScale) {
  run_rank_threads(2, [](int rank, const Group& group) {
    for (const auto type : {DDPCommHookType::kQuantizePerTensor, DDPCommHookType::kQuantizePerChannel}) {
      const Weights weights({700});
      Reducer reducer(weights.tensors, {.process_group = group});
      register_ddp_comm_hook(type, reducer, group);
      weights.step(reducer, factor_of(rank));
      weights.require_gradients(2, /*tolerance=*/0.5 * (700 + 2100) / 255 + 0.1);
      const auto off = (weights.tensors[0].grad() - weights.gradient(0, 2)).abs();
      REQUIRE(off.max().item<double>() <= 0.5 * (700 + 2100) / 255 / 2 + 1e-3);
      // The first channel has smaller numbers, and so a finer scale.
      const auto off_in_first = off.narrow(0, 0, 512).max().item<double>();
      REQUIRE((off_in_first <= 0.5 * (512 + 1536) / 255 / 2 + 1e-3) || type == DDPCommHookType::kQuantizePerTensor);
    }
  });
}

TEST(CommHook, ChannelsMayHaveAnySize) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const Weights weights({8});
    Reducer reducer(weights.tensors, {.process_group = group});
    reducer.register_comm_hook(group, [](const Group& ranks, GradBucket& bucket) {
      return quantization_perchannel_hook_of_size(ranks, bucket, /*bucket_size=*/1);
    });
    weights.step(reducer, factor_of(rank));
    weights.require_gradients(2, 1e-5);  // a channel of one number is exact
  });
}

TEST(CommHook, ABucketWithoutNumbersIsQuantized) {
  run_rank_threads(2, [](int rank, const Group& group) {
    for (const auto type : {DDPCommHookType::kQuantizePerTensor, DDPCommHookType::kQuantizePerChannel}) {
      const Weights weights({0});
      Reducer reducer(weights.tensors, small_buckets(group));
      register_ddp_comm_hook(type, reducer, group);
      weights.step(reducer, factor_of(rank));
      weights.require_gradients(2, /*tolerance=*/0.1);
    }
  });
}

TEST(CommHook, NotANumberCannotBeQuantizedMessage) {
  run_rank_threads(2, [](int, const Group& group) {
    const Weights weights({2});
    Reducer reducer(weights.tensors, {.process_group = group});
    reducer.register_comm_hook(group, quantization_pertensor_hook);
    const auto error = error_of([&] { weights.step(reducer, std::nan("")); });
    REQUIRE(error.find("A communication hook cannot quantize gradients that are NaN") != std::string::npos);
  });
}

TEST(CommHook, PostLocalSgdAveragesOverAllRanksThenOverTheSubgroup) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const Weights weights({3, 5});
    Reducer reducer(weights.tensors, small_buckets(group));
    const auto state = std::make_shared<PostLocalSGDState>(
        PostLocalSGDOptions{.process_group = group, .start_local_sgd_iter = 2, .post_local_gradient_allreduce = false});
    reducer.register_comm_hook(state, post_local_sgd_hook);
    for (int step = 0; step < 4; ++step) {
      weights.step(reducer, factor_of(rank));
      weights.require_gradients(step < 2 ? 2 : factor_of(rank));
    }
    REQUIRE(state->iter() == 2);
  });
}

// Each type reduces a constant gradient without loss; noop_hook does not reduce it.
TEST(CommHook, EveryTypeIsRegistered) {
  run_rank_threads(2, [](int rank, const Group& group) {
    for (auto type = DDPCommHookType::kAllReduce; type <= DDPCommHookType::kNoop;
         type = static_cast<DDPCommHookType>(static_cast<int>(type) + 1)) {
      auto net = torch::nn::Linear(1, 1);
      DistributedDataParallel ddp(net, {.process_group = group});
      register_ddp_comm_hook(type, ddp, group);
      for (int step = 0; step < 3; ++step) {
        ddp->zero_grad();
        (ddp(torch::ones({1, 1})) * factor_of(rank)).sum().backward();
        const auto expected = type == DDPCommHookType::kNoop ? factor_of(rank) : 2.0;
        REQUIRE(at::allclose(net->weight.grad(), torch::full({1, 1}, expected), 0, 1e-5));
      }
      REQUIRE_EQUAL(error_of([&] { register_ddp_comm_hook(type, ddp, group); }),
                    "register_comm_hook or register_builtin_comm_hook can only be called once.");
    }
  });
}

TEST(CommHook, RegisteredTwiceMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    const Weights weights({3});
    for (const auto engine : {Engine::kCohort, Engine::kC10d, kInline}) {
      Reducer reducer(weights.tensors, small_buckets(group, engine));
      reducer.register_builtin_comm_hook(BuiltinCommHookType::kFp16Compress);
      REQUIRE_EQUAL(error_of([&] { reducer.register_comm_hook(nullptr, noop_hook); }),
                    "register_comm_hook or register_builtin_comm_hook can only be called once.");
      REQUIRE_EQUAL(error_of([&] { reducer.register_builtin_comm_hook(BuiltinCommHookType::kAllReduce); }),
                    "register_builtin_comm_hook or register_comm_hook can only be called once.");
    }
  });
}

TEST(CommHook, NotCallableMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    const Weights weights({3});
    Reducer reducer(weights.tensors, {.process_group = group});
    using Pointer = CommHookFuture (*)(std::nullptr_t, GradBucket&);
    const std::string text = "Communication hook must be callable.";
    REQUIRE_EQUAL(error_of([&] { reducer.register_comm_hook(nullptr, Pointer{}); }), text);
    REQUIRE_EQUAL(error_of([&] { reducer.register_comm_hook(CommHook()); }), text);
    const std::function<CommHookFuture(std::nullptr_t, GradBucket&)> empty;
    REQUIRE_EQUAL(error_of([&] { reducer.register_comm_hook(nullptr, empty); }), text);
    weights.step(reducer, 3);
    weights.require_gradients(3);
  });
}

TEST(CommHook, RegisteredDuringBackwardMessage) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const Weights weights({3, 5});
    Reducer reducer(weights.tensors, small_buckets(group));
    std::string error;
    const auto register_now = [&](const at::Tensor&) {
      error = error_of([&] { reducer.register_comm_hook(nullptr, noop_hook); });
    };
    reducer.prepare();
    const auto first = (weights.tensors[0] * weights.gradient(0, factor_of(rank))).sum();
    first.register_hook(register_now);  // runs after the second weight's gradient is there
    const auto second = (weights.tensors[1] * weights.gradient(1, factor_of(rank))).sum();
    second.backward();
    first.backward();
    weights.require_gradients(2);
    REQUIRE_EQUAL(error,
                  "[cohort] register_comm_hook cannot be called while backward runs, or after an unfinished one: "
                  "buckets have gradients already. Register the communication hook before backward().");
    reducer.register_comm_hook(nullptr, noop_hook);  // now it can be
    weights.step(reducer, factor_of(rank));
    weights.require_gradients(factor_of(rank));
  });
}

struct WrongHook {
  CommHookFuture (*hook)(std::nullptr_t, GradBucket&);
  std::string error;
};

CommHookFuture gives_nothing(std::nullptr_t, GradBucket&) { return nullptr; }
CommHookFuture gives_a_number(std::nullptr_t, GradBucket&) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  future->markCompleted(c10::IValue(7));
  return future;
}
CommHookFuture gives_too_little(std::nullptr_t, GradBucket& bucket) {
  return completed_future(bucket.buffer().narrow(0, 0, 2));
}
CommHookFuture throws_at_once(std::nullptr_t, GradBucket&) { TORCH_CHECK(false, "out of patience"); }
CommHookFuture throws_later(std::nullptr_t, GradBucket&) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
  future->setError(std::make_exception_ptr(c10::Error({__func__, __FILE__, 1}, "out of patience")));
  return future;
}

// Backward throws on that rank, and so does every step that follows.
TEST(CommHook, WrongResultsMessage) {
  const std::vector<WrongHook> hooks{
      {gives_nothing,
       "DDP communication hook's callback must return a future, but got a null pointer for bucket 0. Return "
       "work->getFuture() of an operation, a future made from it by then(), or "
       "cohort::ddp::completed_future(bucket.buffer())"},
      {gives_a_number, "expected the hook result is either a Tensor or a TensorList found Int"},
      {gives_too_little,
       "[cohort] DDP communication hook: the future's tensor must have as many elements as the bucket, 8, got sizes "
       "[2]"},
      {throws_at_once, "out of patience"},
      {throws_later, "out of patience"}};
  run_rank_threads(2, [&](int, const Group& group) {
    for (const auto& [hook, text] : hooks) {
      const Weights weights({3, 5});
      Reducer reducer(weights.tensors, {.process_group = group});
      reducer.register_comm_hook(nullptr, hook);
      REQUIRE_EQUAL(error_of([&] { weights.step(reducer, 1); }), text);
      const auto next = error_of([&] { reducer.prepare(); });
      REQUIRE(next.find(comm::without_mark(text)) != std::string::npos);
    }
  });
}

// A hook may call whatever it likes, the reducer included.
TEST(CommHook, MayAskTheReducerAndRunABackwardPassOfItsOwn) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const Weights weights({3, 5});
    Reducer reducer(weights.tensors, small_buckets(group));
    size_t num_buckets = 0;
    reducer.register_comm_hook(group, [&](const Group& ranks, GradBucket& bucket) {
      num_buckets = reducer.buckets().size();
      const auto other = torch::ones({2}, at::requires_grad());
      const at::AutoGradMode with_gradients(true);
      (other * 2).sum().backward();
      REQUIRE(at::equal(other.grad(), torch::full({2}, 2.0)));
      return allreduce_hook(ranks, bucket);
    });
    for (int step = 0; step < 3; ++step) {
      weights.step(reducer, factor_of(rank));
      weights.require_gradients(2);
    }
    REQUIRE(num_buckets == 2);
  });
}

}  // namespace
}  // namespace cohort::ddp
