#include "cohort/parallel/context/context_parallel.h"

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "cohort/comm/collectives/collectives.h"
#include "tests/parallel/context/attention_case.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"
#include "tests/support/rounding.h"

namespace cohort {
namespace {

using test::AttentionCase;
using test::drawn;
using test::error_of;
using test::require_near;
using test::require_own_positions;
using test::run_workers;
using test::whole_attention;

// A layer as a model of one process has it.
at::Tensor layer(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& positions, int64_t heads) {
  const auto qkv = at::linear(x + positions, weight).chunk(3, -1);
  const auto split = [&](const at::Tensor& t) { return t.unflatten(-1, {heads, -1}).transpose(1, 2); };
  const auto out = at::scaled_dot_product_attention(split(qkv[0]), split(qkv[1]), split(qkv[2]), {}, 0.0, true);
  return out.transpose(1, 2).flatten(2);
}

COHORT_WORKER(context_of_a_layer) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto mesh = init_device_mesh("cpu", {get_world_size()}, {"cp"});
  const auto x = drawn({2, 16, 8}, 1), positions = drawn({16, 8}, 2);
  // Scores near 1: large ones make softmax multiply what they are rounded by.
  const auto weight = (drawn({24, 8}, 3) / 4).requires_grad_(), own_weight = weight.detach().clone().requires_grad_();
  const auto expected = layer(x, weight, positions, 4);
  expected.pow(2).sum().backward();
  for (const auto attention : {ContextAttention::kRing, ContextAttention::kUlysses}) {
    for (const bool load_balance : {true, false}) {
      own_weight.mutable_grad() = at::Tensor();
      const auto other = x.narrow(1, 4, 8);  // the same memory
      const auto before = other.clone();
      at::Tensor own;
      {
        const ContextParallel scope(mesh, {.buffers = {x, positions},
                                           .buffer_seq_dims = {1, 0},
                                           .load_balance = load_balance,
                                           .attention = attention});
        REQUIRE(x.size(1) == 16 / get_world_size() && positions.size(0) == 16 / get_world_size());
        own = layer(x, own_weight, positions, 4);
        x.zero_();
        REQUIRE(at::equal(other, before) || get_world_size() == 1);
      }
      REQUIRE(at::equal(other, before) || get_world_size() == 1);
      if (get_world_size() > 1) REQUIRE(x.sizes() == c10::IntArrayRef({2, 16, 8}) && !at::equal(x, at::zeros_like(x)));
      require_near(context_parallel_unshard(mesh, {own}, {1}, load_balance)[0], expected);
      own.pow(2).sum().backward();  // after the scope
      auto sum = own_weight.grad().clone();
      all_reduce(sum);
      // Forward and backward 8 features, scores of 2 and weights of 16 positions; then all positions of both rows.
      REQUIRE(test::are_rounded_alike(sum, weight.grad(), 2 * (8 + 2 + 16) + 2 * 16));
    }
  }
  REQUIRE(at::equal(layer(x, weight, positions, 4), expected));
  destroy_process_group();
}

TEST(ContextParallel, RunsALayerThatKnowsNothingOfIt) {
  for (const int n : {2, 4}) run_workers("context_of_a_layer", {.world_size = n}).expect_success();
}

COHORT_WORKER(context_attention) {
  init_process_group({.backend = test::backend_of_tests()});
  for (const auto attention : {ContextAttention::kRing, ContextAttention::kUlysses}) {
    const AttentionCase c{.heads = 8, .is_causal = true, .scale = 0.3};
    const auto whole = whole_attention(c);
    const ContextParallel scope(Group(), {.attention = attention, .rotate = RotateMethod::kAllToAll});
    require_own_positions(c, whole, [](const auto& q, const auto& k, const auto& v) {
      return at::scaled_dot_product_attention(q, k, v, {}, 0.0, true, 0.3, /*enable_gqa=*/true);
    });
    const c10::InferenceMode inference;
    const auto own = [](const at::Tensor& tensor) {
      return parallel::shard_sequence(tensor, 2, parallel::SequenceLayout::kHeadTail);
    };
    require_near(
        at::scaled_dot_product_attention(own(whole.query), own(whole.key), own(whole.value), {}, 0.0, true, 0.3, true),
        own(whole.out), 2e-5, "inference");
  }
  destroy_process_group();
}

TEST(ContextParallel, StandsBeforeAttention) {
  for (const int n : {2, 4}) run_workers("context_attention", {.world_size = n}).expect_success();
}

COHORT_WORKER(context_buffers) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto tokens = at::arange(8), targets = at::arange(8) + 1;
  {
    const ContextParallel scope(
        Group(), {.buffers = {tokens, targets}, .buffer_seq_dims = {0, 0}, .no_restore_buffers = {targets}});
    const auto expected = get_rank() == 0 ? at::tensor({0, 1, 6, 7}, at::kLong) : at::tensor({2, 3, 4, 5}, at::kLong);
    REQUIRE(at::equal(tokens, expected) && at::equal(targets, expected + 1));
  }
  REQUIRE(at::equal(tokens, at::arange(8)) && targets.size(0) == 4);
  REQUIRE(at::equal(context_parallel_unshard(Group(), {targets, tokens}, {0, 0})[0], at::arange(8) + 1));
  destroy_process_group();
}

TEST(ContextParallel, RestoresWhatItSharded) { run_workers("context_buffers").expect_success(); }

COHORT_WORKER(context_errors) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto tokens = at::arange(8), targets = at::arange(6);
  const auto of = [&](const ContextParallelOptions& options) {
    return error_of([&] { ContextParallel(Group(), options); });
  };
  REQUIRE_EQUAL(of({.buffers = {tokens}}), "`seq_dims` must have the same number of elements as `buffers`.");
  REQUIRE_EQUAL(of({.buffers = {tokens}, .buffer_seq_dims = {0}, .no_restore_buffers = {targets}}),
                "`no_restore_buffers` must be a subset of `buffers`.");
  REQUIRE_EQUAL(
      of({.buffers = {tokens, targets}, .buffer_seq_dims = {0, 0}}),
      "[cohort] context parallel: a sequence of 6 positions (dimension 0) cannot be divided evenly among 2 ranks: "
      "with load balancing each has a part from the head and one from the tail, so there are 2 * 2 = 4 parts, and "
      "6 mod 4 = 2\n  hint: pad it to 8 positions");
  REQUIRE(tokens.size(0) == 8);
  REQUIRE_EQUAL(of({.buffers = {tokens, tokens}, .buffer_seq_dims = {0, 0}}),
                "[cohort] ContextParallel: buffers 0 and 1 are the same tensor");
  REQUIRE_EQUAL(of({.buffers = {at::ones({8}).requires_grad_()}, .buffer_seq_dims = {0}}),
                "[cohort] ContextParallel: buffer 0 requires a gradient, so its size cannot change\n"
                "  hint: shard tensors that autograd follows with shard_sequence()");
  REQUIRE_EQUAL(error_of([&] { context_parallel_unshard(Group(), {tokens}, {}); }),
                "`seq_dims` must have the same number of elements as `buffers`.");
  const auto q = at::ones({1, 2, 4, 2});
  {
    const ContextParallel scope{Group()};
    REQUIRE_EQUAL(of({}), "[cohort] ContextParallel: another scope is open\n  hint: end it first; scopes do not nest");
    REQUIRE_EQUAL(error_of([&] { at::scaled_dot_product_attention(q, q, q, {}, 0.5); }),
                  "[cohort] ContextParallel: attention with dropout (dropout_p is 0.5) is not supported\n"
                  "  hint: set it to 0; dropout elsewhere in the model is not affected");
    REQUIRE_EQUAL(error_of([&] {
                    at::scaled_dot_product_attention(q, q, q, at::ones({4, 4}));
                  }),
                  "[cohort] ContextParallel: ring attention takes no attn_mask\n"
                  "  hint: set is_causal = true for a causal mask, or use ContextAttention::kUlysses for any mask");
  }
  REQUIRE(at::scaled_dot_product_attention(q, q, q, at::ones({4, 4}), 0.5).sizes() == q.sizes());
  barrier();  // no rank leaves while another one connects
  destroy_process_group();
}

TEST(ContextParallel, SaysWhatDoesNotFit) { run_workers("context_errors").expect_success(); }

}  // namespace
}  // namespace cohort
