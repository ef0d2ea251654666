#include "cohort/parallel/context/ring_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/parallel/context/attention_block.h"
#include "cohort/parallel/context/ulysses_attention.h"
#include "tests/parallel/context/attention_case.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"

namespace cohort {
namespace {

using test::AttentionCase;
using test::drawn;
using test::error_of;
using test::require_near;
using test::require_own_positions;
using test::run_workers;
using test::whole_attention;
using testing::HasSubstr;

constexpr auto kLayouts = {parallel::SequenceLayout::kHeadTail, parallel::SequenceLayout::kContiguous};

void require_ring(const AttentionCase& c, const Group& group = {}) {
  const auto whole = whole_attention(c);
  for (const auto rotate : {RotateMethod::kAllGather, RotateMethod::kAllToAll}) {
    const parallel::RingAttentionOptions options{.group = group,
                                                 .is_causal = c.is_causal,
                                                 .scale = c.scale,
                                                 .enable_gqa = c.heads != c.key_heads,
                                                 .layout = c.layout,
                                                 .rotate = rotate};
    require_own_positions(
        c, whole,
        [&](const auto& q, const auto& k, const auto& v) { return parallel::ring_attention(q, k, v, options); }, group);
  }
}

COHORT_WORKER(ring_equals_attention) {
  init_process_group({.backend = test::backend_of_tests()});
  for (const auto layout : kLayouts) {
    for (const bool is_causal : {false, true}) {
      require_ring({.is_causal = is_causal, .layout = layout});
      require_ring(
          {.heads = 3, .key_heads = 3, .length = 40, .key_length = 40, .is_causal = is_causal, .layout = layout});
      require_ring({.key_heads = 2, .is_causal = is_causal, .layout = layout, .scale = 0.7});
      require_ring({.value_size = 5, .is_causal = is_causal, .layout = layout});  // no flash kernel
      require_ring({.key_heads = 1, .value_size = 5, .is_causal = is_causal, .layout = layout});
      require_ring({.is_causal = is_causal, .layout = layout, .dtype = at::kDouble, .tolerance = 1e-12});
      require_ring({.is_causal = is_causal, .layout = layout, .dtype = at::kBFloat16, .tolerance = 3e-2});
    }
    require_ring({.length = 16, .key_length = 24, .layout = layout});
  }
  destroy_process_group();
}

// Kernels of attention read memory as if the last dimension had no gaps.
COHORT_WORKER(ring_of_tensors_with_gaps) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto with_gaps = [](const at::Tensor& x) { return x.transpose(-1, -2).contiguous().transpose(-1, -2); };
  const AttentionCase c{.is_causal = true};
  require_own_positions(c, whole_attention(c), [&](const auto& q, const auto& k, const auto& v) {
    return with_gaps(parallel::ring_attention(with_gaps(q), with_gaps(k), with_gaps(v), {.is_causal = true}));
  });
  destroy_process_group();
}

TEST(RingAttention, TakesTensorsWithGaps) { run_workers("ring_of_tensors_with_gaps").expect_success(); }

TEST(RingAttention, IsAttentionOfTheFullSequence) {
  for (const int n : {1, 2, 4}) run_workers("ring_equals_attention", {.world_size = n}).expect_success();
}

COHORT_WORKER(ring_over_some_ranks) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto group = new_group({1, 3});
  if (get_rank(group) >= 0) {
    require_ring({.is_causal = true}, group);
  } else {
    REQUIRE_EQUAL(error_of([&] {
                    parallel::ring_attention(at::ones({1, 1, 2, 2}), at::ones({1, 1, 2, 2}), at::ones({1, 1, 2, 2}),
                                             {.group = group});
                  }),
                  "Invalid process group specified");
  }
  barrier();  // no rank leaves while another one connects
  destroy_process_group();
}

TEST(RingAttention, RunsInASubgroup) { run_workers("ring_over_some_ranks", {.world_size = 4}).expect_success(); }

// Scores of hundreds, which sums of exponentials would not hold.
COHORT_WORKER(ring_of_large_scores) {
  init_process_group({.backend = test::backend_of_tests()});
  require_ring({.is_causal = true, .tolerance = 1e-4, .scale = 60.0});
  require_ring({.is_causal = false, .tolerance = 1e-4, .scale = 60.0});
  destroy_process_group();
}

TEST(RingAttention, MergesByLogSumExp) { run_workers("ring_of_large_scores").expect_success(); }

COHORT_WORKER(ring_errors) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto tensor = [](std::vector<int64_t> shape) { return at::ones(shape).requires_grad_(); };
  const auto q = tensor({1, 4, 4, 2});
  REQUIRE_EQUAL(
      error_of([&] {
        parallel::ring_attention(q, tensor({1, 4, 4, 3}), q);
      }),
      "[cohort] ring_attention: query [batch, heads, positions, size], key and value [batch, key heads, their "
      "positions, size] were expected, but got [1, 4, 4, 2], [1, 4, 4, 3] and [1, 4, 4, 2]");
  REQUIRE_EQUAL(error_of([&] { parallel::ring_attention(q, q.to(at::kDouble), q); }),
                "[cohort] ring_attention: query, key and value must have one floating-point dtype, but have Float, "
                "Double and Float");
  const auto two = tensor({1, 2, 4, 2}), three = tensor({1, 3, 4, 2});
  REQUIRE_EQUAL(
      error_of([&] { parallel::ring_attention(q, two, two); }),
      "[cohort] ring_attention: 4 heads of queries and 2 of keys: their numbers must be equal without enable_gqa");
  REQUIRE_EQUAL(error_of([&] { parallel::ring_attention(q, three, three, {.enable_gqa = true}); }),
                "[cohort] ring_attention: 4 heads of queries and 3 of keys: 4 mod 3 = 1");
  const auto longer = tensor({1, 4, 6, 2});
  REQUIRE_EQUAL(error_of([&] { parallel::ring_attention(q, longer, longer, {.is_causal = true}); }),
                "[cohort] ring_attention: is_causal needs as many queries as keys, but there are 4 and 6");
  const auto odd = tensor({1, 4, 3, 2});
  REQUIRE_EQUAL(
      error_of([&] { parallel::ring_attention(odd, odd, odd, {.is_causal = true}); }),
      "[cohort] context parallel: a sequence of 6 positions (dimension 2) cannot be divided evenly among 2 ranks: "
      "with load balancing each has a part from the head and one from the tail, so there are 2 * 2 = 4 parts, and "
      "6 mod 4 = 2\n  hint: pad it to 8 positions");
  const auto out = parallel::ring_attention(q, q, q);
  REQUIRE_EQUAL(error_of([&] { torch::autograd::grad({out.sum()}, {q}, {}, std::nullopt, /*create_graph=*/true); }),
                "[cohort] ring_attention has no second derivatives\n  hint: call backward() without create_graph");
  barrier();  // no rank leaves while another one connects
  destroy_process_group();
}

TEST(RingAttention, SaysWhatDoesNotFit) { run_workers("ring_errors").expect_success(); }

COHORT_WORKER(ring_unevenly) {
  init_process_group({.backend = "shm"});
  test::print_error([&] {
    const auto q = at::ones({1, 1, 4, 2});
    if (get_rank() == 0) parallel::ring_attention(q, q, q);
    barrier();
  });
}

TEST(RingAttentionErrors, ARankThatDoesNotComeMessage) {
  const auto results = run_workers("ring_unevenly");
  EXPECT_THAT(results[0].output,
              HasSubstr(", which is ring attention's exchange of keys and values in a forward or backward pass"));
}

TEST(AttentionBlock, PlainFormIsTheKernels) {
  const auto q = drawn({2, 3, 6, 4}, 1), k = drawn({2, 3, 6, 4}, 2), v = drawn({2, 3, 6, 4}, 3),
             g = drawn({2, 3, 6, 4}, 4);
  for (const bool is_causal : {false, true}) {
    const parallel::BlockKind kind{.is_causal = is_causal, .scale = 0.5};
    const auto block = parallel::attend(q, k, v, kind);
    const auto longer = at::cat({v, at::zeros({2, 3, 6, 1})}, -1);  // of another size than keys: plainly
    const auto plain = parallel::attend(q, k, longer, kind);
    require_near(plain.out.narrow(-1, 0, 4), block.out);
    require_near(plain.lse, block.lse);
    const auto theirs = parallel::attend_backward(g, q, k, v, block, kind);
    const auto ours = parallel::attend_backward(at::cat({g, at::zeros({2, 3, 6, 1})}, -1), q, k, longer, plain, kind);
    require_near(ours.query, theirs.query);
    require_near(ours.key, theirs.key);
    require_near(ours.value.narrow(-1, 0, 4), theirs.value);
  }
}

void require_ulysses(const AttentionCase& c, const std::optional<at::Tensor>& mask = {}) {
  const parallel::UlyssesOptions options{.attn_mask = mask,
                                         .is_causal = c.is_causal,
                                         .scale = c.scale,
                                         .enable_gqa = c.heads != c.key_heads,
                                         .layout = c.layout};
  require_own_positions(c, whole_attention(c, mask), [&](const auto& q, const auto& k, const auto& v) {
    return parallel::ulysses_attention(q, k, v, options);
  });
}

COHORT_WORKER(ulysses_equals_attention) {
  init_process_group({.backend = test::backend_of_tests()});
  for (const auto layout : kLayouts) {
    for (const bool is_causal : {false, true}) {
      require_ulysses({.is_causal = is_causal, .layout = layout});
      require_ulysses({.heads = 8, .key_heads = 4, .is_causal = is_causal, .layout = layout, .scale = 0.7});
      require_ulysses({.value_size = 5, .is_causal = is_causal, .layout = layout});
      require_ulysses({.is_causal = is_causal, .layout = layout, .dtype = at::kDouble, .tolerance = 1e-12});
    }
    require_ulysses({.length = 16, .key_length = 24, .layout = layout}, drawn({16, 24}, 9));
  }
  destroy_process_group();
}

TEST(UlyssesAttention, IsAttentionOfTheFullSequence) {
  for (const int n : {1, 2, 4}) run_workers("ulysses_equals_attention", {.world_size = n}).expect_success();
}

COHORT_WORKER(ulysses_errors) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto heads = [](int64_t number) { return at::ones({1, number, 4, 2}); };
  REQUIRE_EQUAL(error_of([&] { parallel::ulysses_attention(heads(6), heads(6), heads(6)); }),
                "[cohort] 6 attention heads cannot be divided evenly among 4 ranks: 6 = 1 * 4 + 2\n"
                "  hint: take a multiple of 4, or a number of ranks that divides it: 1, 2 or 3");
  REQUIRE_EQUAL(error_of([&] { parallel::ulysses_attention(heads(8), heads(2), heads(2), {.enable_gqa = true}); }),
                "[cohort] 2 heads of keys and values cannot be divided evenly among 4 ranks: 2 = 0 * 4 + 2\n"
                "  hint: take a multiple of 4, or a number of ranks that divides it: 1 or 2");
  REQUIRE_EQUAL(error_of([&] { parallel::ulysses_attention(heads(8), at::ones({2}), heads(8)); }),
                "[cohort] ulysses_attention: query [batch, heads, positions, size], key and value [batch, key heads, "
                "their positions, size] were expected, but got [1, 8, 4, 2], [2] and [1, 8, 4, 2]");
  barrier();  // no rank leaves while another one connects
  destroy_process_group();
}

TEST(UlyssesAttention, SaysWhatDoesNotDivide) { run_workers("ulysses_errors", {.world_size = 4}).expect_success(); }

}  // namespace
}  // namespace cohort
