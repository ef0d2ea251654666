// The programs of docs/guide/context_parallel.md (tests/tools/guide_test.py compares them), run by two ranks.
#include <ATen/ATen.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/mesh/device_mesh.h>
#include <cohort/parallel/context/context_parallel.h>
#include <cohort/parallel/context/ring_attention.h>
#include <cohort/parallel/context/sequence_layout.h>
#include <cohort/parallel/context/ulysses_attention.h>

#include "guide.h"

namespace guide {
namespace {

// Does not depend on other ranks.
at::Tensor self_attention(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& positions) {
  const auto parts = at::linear(x + positions, weight).chunk(3, -1);
  const auto heads = [](const at::Tensor& t) { return t.unflatten(-1, {2, -1}).transpose(1, 2); };
  const auto out = at::scaled_dot_product_attention(heads(parts[0]), heads(parts[1]), heads(parts[2]),
                                                    /*attn_mask=*/{}, /*dropout_p=*/0, /*is_causal=*/true);
  return out.transpose(1, 2).flatten(2);
}

void train_positions(const cohort::DeviceMesh& mesh) {
  at::manual_seed(1);  // the same sequence on every rank
  const auto x = at::randn({2, 16, 8}), positions = at::randn({16, 8});
  const auto weight = at::randn({24, 8}).requires_grad_();
  const auto full = self_attention(x, weight, positions).detach();
  {
    const cohort::ContextParallel scope(mesh, {.buffers = {x, positions}, .buffer_seq_dims = {1, 0}});
    const auto own = self_attention(x, weight, positions);  // x is [2, 8, 8] here
    own.pow(2).sum().backward();
    const auto again = cohort::context_parallel_unshard(mesh, {own}, {1});
    TORCH_CHECK(at::allclose(again[0], full, 1e-4, 1e-5));
  }
  cohort::all_reduce(weight.grad(), {.group = mesh.group()});  // each rank has the gradient of its own positions
  TORCH_CHECK(x.size(1) == 16);
}

void attention_by_hand(const cohort::Group& cp) {
  const auto q = at::randn({2, 4, 16, 8}), k = at::randn({2, 4, 16, 8}), v = at::randn({2, 4, 16, 8});
  const auto full = at::scaled_dot_product_attention(q, k, v, {}, 0, /*is_causal=*/true);
  const auto part = [&](const at::Tensor& t) {
    return cohort::parallel::shard_sequence(t, 2, cohort::parallel::SequenceLayout::kHeadTail, cp);
  };
  const auto ring = cohort::parallel::ring_attention(part(q), part(k), part(v), {.group = cp, .is_causal = true});
  const auto ulysses = cohort::parallel::ulysses_attention(part(q), part(k), part(v), {.group = cp, .is_causal = true});
  TORCH_CHECK(at::allclose(ring, part(full), 1e-4, 1e-5) && at::allclose(ulysses, ring, 1e-4, 1e-5));
}

}  // namespace

void run_context_parallel() {
  const cohort::DeviceMesh mesh = cohort::init_device_mesh("cpu", {2}, {"cp"});
  train_positions(mesh);
  attention_by_hand(mesh.group());
  cohort::barrier();
  cohort::destroy_process_group();
}

}  // namespace guide
