#include "cohort/parallel/tensor/parallel_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "cohort/base/machine/cpu.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/mesh/shard.h"
#include "cohort/parallel/module/sharded_tensors.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/tensor/regions.h"
#include "tests/parallel/tensor/numbers.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"

namespace cohort {
namespace {

using test::drawn;
using test::error_of;
using test::require_near;
using test::run_workers;
using testing::HasSubstr;

at::Tensor own_chunk(const at::Tensor& whole, int64_t dim) {
  const auto range = mesh::chunk_range(whole.size(dim), get_world_size(), get_rank());
  return whole.narrow(dim, range.begin, range.size());
}

struct Sizes {
  int64_t in, hidden, out;
};

// A column layer and a row layer are two linear layers: values at first, results and gradients. Any sizes.
void require_two_linears(const Sizes& sizes, bool bias, bool whole_between) {
  at::manual_seed(11);
  torch::nn::Linear first(torch::nn::LinearOptions(sizes.in, sizes.hidden).bias(bias));
  torch::nn::Linear second(torch::nn::LinearOptions(sizes.hidden, sizes.out).bias(bias));
  at::manual_seed(11 + get_rank());  // rank 0's count
  parallel::ColumnParallelLinear column(sizes.in, sizes.hidden,
                                        parallel::ColumnParallelOptions{.bias = bias, .gather_output = whole_between});
  const auto next = at::rand({1});
  parallel::RowParallelLinear row(sizes.hidden, sizes.out,
                                  parallel::RowParallelOptions{.bias = bias, .input_is_parallel = !whole_between});
  (void)next;
  row->load_full(second->weight, second->bias);
  REQUIRE(at::equal(column->full_weight(), first->weight));
  REQUIRE(at::equal(column->weight, own_chunk(first->weight, 0)));
  REQUIRE(at::equal(row->full_weight(), second->weight));
  if (bias) REQUIRE(at::equal(column->full_bias(), first->bias));

  const auto x = drawn({2, 3, sizes.in}, 1).requires_grad_(), y = x.detach().clone().requires_grad_();
  const auto expected = second->forward(first->forward(x).tanh());
  const auto hidden = column->forward(y);
  REQUIRE(hidden.size(-1) == (whole_between ? sizes.hidden : column->weight.size(0)));
  const auto got = row->forward(hidden.tanh());
  require_near(got, expected);
  const auto cotangent = drawn(expected.sizes().vec(), 2);
  expected.backward(cotangent);
  got.backward(cotangent);
  require_near(y.grad(), x.grad(), 1e-5, "input");
  require_near(column->weight.grad(), own_chunk(first->weight.grad(), 0), 1e-5, "column");
  require_near(row->weight.grad(), own_chunk(second->weight.grad(), 1), 1e-5, "row");
  if (!bias) return;
  require_near(column->bias.grad(), own_chunk(first->bias.grad(), 0), 1e-5, "column's bias");
  require_near(row->bias.grad(), second->bias.grad(), 1e-5, "row's bias");
}

COHORT_WORKER(layers_are_linear) {
  init_process_group({.backend = test::backend_of_tests()});
  for (const bool bias : {true, false}) {
    for (const bool whole_between : {false, true}) {
      require_two_linears({6, 8, 4}, bias, whole_between);
      require_two_linears({5, 7, 3}, bias, whole_between);  // of 7, four ranks have 2, 2, 2, 1
      require_two_linears({3, 5, 2}, bias, whole_between);  // of 5, they have 2, 2, 1, 0
    }
  }
  destroy_process_group();
}

TEST(TensorParallelLayers, AreLinearLayers) {
  for (const int n : {1, 2, 4}) run_workers("layers_are_linear", {.world_size = n}).expect_success();
}

COHORT_WORKER(layers_first_values) {
  init_process_group({.backend = test::backend_of_tests()});
  at::manual_seed(3);
  torch::nn::Linear first(4, 6), second(6, 4);
  torch::nn::Embedding third(torch::nn::EmbeddingOptions(10, 4).padding_idx(2));
  const auto after = at::rand({1});
  at::manual_seed(3);
  parallel::ColumnParallelLinear column(4, 6);
  parallel::RowParallelLinear row(6, 4);
  parallel::VocabParallelEmbedding embedding(10, 4, parallel::VocabParallelOptions{.padding_idx = -8});
  REQUIRE(at::equal(column->full_weight(), first->weight) && at::equal(column->full_bias(), first->bias));
  REQUIRE(at::equal(row->full_weight(), second->weight) && at::equal(row->bias, second->bias));
  REQUIRE(at::equal(embedding->full_weight(), third->weight));
  REQUIRE(at::equal(at::rand({1}), after));
  destroy_process_group();
}

TEST(TensorParallelLayers, BeginAsOneProcessDoes) {
  for (const int n : {1, 2, 4}) run_workers("layers_first_values", {.world_size = n}).expect_success();
}

// Positions are shared out between the layers, where a norm is.
COHORT_WORKER(layers_sequence_parallel) {
  init_process_group({.backend = test::backend_of_tests()});
  const std::vector<at::Tensor> weights{drawn({8, 6}, 1), drawn({6, 8}, 2)}, biases{drawn({8}, 3), drawn({6}, 4)};
  for (const int64_t dim : {0, 1}) {
    parallel::ColumnParallelLinear column(
        6, 8, parallel::ColumnParallelOptions{.sequence_parallel = true, .sequence_dim = dim});
    parallel::RowParallelLinear row(8, 6, parallel::RowParallelOptions{.sequence_parallel = true, .sequence_dim = dim});
    column->load_full(weights[0], biases[0]);
    row->load_full(weights[1], biases[1]);
    const auto scale = drawn({6}, 5).requires_grad_(), own_scale = scale.detach().clone().requires_grad_();
    const auto x = drawn({4, 8, 6}, 6).requires_grad_();
    const auto own_x = own_chunk(x.detach(), dim).clone().requires_grad_();
    const auto expected = at::linear(at::linear(x * scale, weights[0], biases[0]).tanh(), weights[1], biases[1]);
    const auto got = row->forward(column->forward(own_x * own_scale).tanh());
    require_near(got, own_chunk(expected, dim));
    const auto cotangent = drawn({4, 8, 6}, 7);
    expected.backward(cotangent);
    got.backward(own_chunk(cotangent, dim).contiguous());
    parallel::reduce_sequence_gradients({own_scale, at::ones({1})});
    require_near(own_x.grad(), own_chunk(x.grad(), dim), 1e-5, "input");
    require_near(own_scale.grad(), scale.grad(), 1e-5, "scale");
    require_near(row->bias.grad(), cotangent.sum({0, 1}), 1e-5, "row's bias");
    require_near(row->weight.grad(),
                 own_chunk(torch::autograd::grad({at::linear(at::linear(x * scale, weights[0], biases[0]).tanh(),
                                                             weights[1].requires_grad_(), biases[1])},
                                                 {weights[1]}, {cotangent})[0],
                           1),
                 1e-5, "row");
    weights[1].requires_grad_(false);
  }
  destroy_process_group();
}

TEST(TensorParallelLayers, ShareOutPositionsBetweenThem) {
  for (const int n : {1, 2, 4}) run_workers("layers_sequence_parallel", {.world_size = n}).expect_success();
}

// One piece is multiplied while the next is gathered: as with one gather.
COHORT_WORKER(layers_gather_in_pieces) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto weight = drawn({8, 6}, 1).to(at::kDouble), bias = drawn({8}, 3).to(at::kDouble);
  for (const int64_t dim : {0, 1, -2}) {
    for (const int64_t pieces : {2, 3, 4}) {
      std::vector<std::vector<at::Tensor>> outcomes;
      for (const int64_t one : {int64_t{1}, pieces}) {
        parallel::ColumnParallelLinear column(
            6, 8,
            parallel::ColumnParallelOptions{.sequence_parallel = true, .sequence_dim = dim, .gather_pieces = one});
        column->to(at::kDouble);
        column->load_full(weight, bias);
        const auto x = own_chunk(drawn({8, 16, 6}, 6).to(at::kDouble), dim).clone().requires_grad_();
        const auto y = column->forward(x);
        y.backward(drawn(y.sizes().vec(), 7 + get_rank()).to(at::kDouble));
        outcomes.push_back({y, x.grad(), column->weight.grad(), column->bias.grad()});
      }
      for (size_t i = 0; i < outcomes[0].size(); ++i) {
        REQUIRE(outcomes[0][i].sizes() == outcomes[1][i].sizes());
        require_near(outcomes[1][i], outcomes[0][i], 1e-12);
      }
    }
  }
  parallel::ColumnParallelLinear column(6, 8,
                                        parallel::ColumnParallelOptions{.sequence_parallel = true, .gather_pieces = 2});
  const auto x = drawn({2, 4, 6}, 6).requires_grad_();
  const auto loss = column->forward(x).square().sum();
  REQUIRE_EQUAL(error_of([&] { torch::autograd::grad({loss}, {x}, {}, std::nullopt, /*create_graph=*/true); }),
                "[cohort] ColumnParallelLinear: a gather in several pieces has first derivatives only\n  hint: set "
                "ColumnParallelOptions{.gather_pieces = 1} for higher derivatives");
  REQUIRE_EQUAL(
      error_of([&] { parallel::ColumnParallelLinear(6, 8, parallel::ColumnParallelOptions{.gather_pieces = 0}); }),
      "[cohort] ColumnParallelLinear: gather_pieces is 0, but must be at least 1\n  hint: set it to 1 to "
      "gather in one piece, or leave it out to let the number of cores decide");
  // A core for every thread of the host's ranks, and one more for each.
  const auto pieces_with = [](const char* num_ranks, int num_threads) {
    ::setenv("LOCAL_WORLD_SIZE", num_ranks, 1);
    at::set_num_threads(num_threads);
    return *parallel::ColumnParallelLinear(6, 8, parallel::ColumnParallelOptions{.sequence_parallel = true})
                ->options.gather_pieces;
  };
  const int num_cores = base::available_cores();
  REQUIRE(pieces_with("1", num_cores) == 1 && pieces_with(std::to_string(num_cores).c_str(), 1) == 1);
  REQUIRE(pieces_with("1", 1) == (num_cores > 1 ? 4 : 1));
  destroy_process_group();
}

TEST(TensorParallelLayers, GatherInPiecesWhileTheyMultiply) {
  for (const int n : {2, 4}) run_workers("layers_gather_in_pieces", {.world_size = n}).expect_success();
}

// Two layers of one input need one exchange of its gradient.
COHORT_WORKER(layers_of_one_input) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto weights = drawn({8, 6}, 1), others = drawn({8, 6}, 2);
  for (const bool shares_positions : {false, true}) {
    const parallel::ColumnParallelOptions options{
        .bias = false, .copy_input = false, .sequence_parallel = shares_positions};
    parallel::ColumnParallelLinear first(6, 8, options), second(6, 8, options);
    first->load_full(weights);
    second->load_full(others);
    const auto x = drawn({2, 4, 6}, 3).requires_grad_();
    const auto own = (shares_positions ? own_chunk(x.detach(), 1) : x.detach()).clone().requires_grad_();
    const auto input = shares_positions
                           ? parallel::gather_from_region(own, 1, {.gradient = parallel::RegionGradient::kSum})
                           : parallel::copy_to_region(own);
    const auto before = get_sequence_number();
    const auto got = first->forward(input) * second->forward(input);
    REQUIRE(get_sequence_number() == before);
    const auto expected = at::linear(x, weights) * at::linear(x, others);
    require_near(got, own_chunk(expected, 2));
    const auto cotangent = drawn({2, 4, 8}, 4);
    expected.backward(cotangent);
    got.backward(own_chunk(cotangent, 2));
    require_near(own.grad(), shares_positions ? own_chunk(x.grad(), 1) : x.grad());
  }
  destroy_process_group();
}

TEST(TensorParallelLayers, ShareAnInput) {
  for (const int n : {1, 2, 4}) run_workers("layers_of_one_input", {.world_size = n}).expect_success();
}

COHORT_WORKER(layers_embedding) {
  init_process_group({.backend = test::backend_of_tests()});
  for (const int64_t rows : {12, 10, 5}) {  // of 5, four ranks have 2, 2, 1, 0
    for (const bool pads : {false, true}) {
      const std::optional<int64_t> padding = pads ? std::optional<int64_t>(3) : std::nullopt;
      parallel::VocabParallelEmbedding embedding(rows, 4, parallel::VocabParallelOptions{.padding_idx = padding});
      parallel::VocabParallelEmbedding of_positions(
          rows, 4, parallel::VocabParallelOptions{.sequence_parallel = true, .sequence_dim = 1});
      const auto whole = drawn({rows, 4}, 8).requires_grad_();
      embedding->load_full(whole.detach());
      of_positions->load_full(whole.detach());
      const auto indices = at::arange(24).remainder(rows).view({3, 8});
      const auto expected = at::embedding(whole, indices, pads ? 3 : -1), got = embedding->forward(indices);
      REQUIRE(at::equal(got, expected));
      const auto cotangent = drawn({3, 8, 4}, 9);
      expected.backward(cotangent);
      got.backward(cotangent);
      require_near(embedding->weight.grad(), own_chunk(whole.grad(), 0));
      const auto part = of_positions->forward(indices);
      REQUIRE(at::equal(part, own_chunk(expected, 1)));
      part.backward(own_chunk(cotangent, 1).contiguous());
      if (!pads) require_near(of_positions->weight.grad(), own_chunk(whole.grad(), 0));
    }
  }
  destroy_process_group();
}

TEST(TensorParallelLayers, LookUpEachIndexOnce) {
  for (const int n : {1, 2, 4}) run_workers("layers_embedding", {.world_size = n}).expect_success();
}

COHORT_WORKER(layers_clipping) {
  init_process_group({.backend = test::backend_of_tests()});
  torch::nn::Linear first(6, 8), second(8, 4);
  parallel::ColumnParallelLinear column(6, 8);
  parallel::RowParallelLinear row(8, 4);
  const std::vector<at::Tensor> wholes{first->weight, first->bias, second->weight, second->bias};
  const std::vector<at::Tensor> parts{column->weight, column->bias, row->weight, row->bias};
  for (size_t i = 0; i < wholes.size(); ++i) {
    wholes[i].mutable_grad() = drawn(wholes[i].sizes().vec(), 20 + i);
    const auto& gradient = wholes[i].grad();
    parts[i].mutable_grad() = (i == 3 ? gradient : own_chunk(gradient, i == 2 ? 1 : 0)).clone();
  }
  require_near(nn::utils::clip_grad_norm_(parts, 0.5), nn::utils::clip_grad_norm_(wholes, 0.5));
  require_near(row->weight.grad(), own_chunk(second->weight.grad(), 1));
  require_near(row->bias.grad(), second->bias.grad());
  destroy_process_group();
}

TEST(TensorParallelLayers, AreClippedTogether) {
  for (const int n : {1, 2, 4}) run_workers("layers_clipping", {.world_size = n}).expect_success();
}

COHORT_WORKER(layers_errors) {
  init_process_group({.backend = test::backend_of_tests()});
  parallel::ColumnParallelLinear column(6, 10);
  parallel::RowParallelLinear row(10, 6),
      from_whole(10, 6, parallel::RowParallelOptions{.bias = false, .input_is_parallel = false});
  parallel::RowParallelLinear of_positions(10, 6, parallel::RowParallelOptions{.sequence_parallel = true});
  parallel::VocabParallelEmbedding embedding(10, 4);
  REQUIRE_EQUAL(error_of([&] {
                  column->forward(at::ones({2, 5}));
                }),
                "[cohort] ColumnParallelLinear: an input of shape [2, 5] was given, whose last dimension should be 6");
  const auto own = std::to_string(row->weight.size(1));
  REQUIRE_EQUAL(error_of([&] {
                  row->forward(at::ones({2, 10}));
                }),
                "[cohort] RowParallelLinear: an input of shape [2, 10] was given, whose last dimension should be " +
                    own +
                    ", this rank's shard of 10: ceil(10 / 4) = 3 for each of 4 ranks, so they have 3, 3, 3, 1\n"
                    "  hint: set input_is_parallel = false to pass the full input");
  REQUIRE_EQUAL(
      error_of([&] {
        from_whole->forward(at::ones({2, 3}));
      }),
      "[cohort] RowParallelLinear: an input of shape [2, 3] was given, whose last dimension should be 10, as "
      "input_is_parallel is false\n  hint: set it to true after a ColumnParallelLinear without gather_output");
  REQUIRE_EQUAL(error_of([&] {
                  of_positions->forward(at::ones({2, 6, row->weight.size(1)}));
                }),
                "[cohort] 6 positions of the sequence cannot be divided evenly among 4 ranks: 6 = 1 * 4 + 2\n"
                "  hint: take a multiple of 4, or a number of ranks that divides it: 1, 2 or 3");
  REQUIRE_EQUAL(error_of([&] {
                  embedding->forward(at::tensor({3, 10}, at::kLong));
                }),
                "[cohort] VocabParallelEmbedding: index 10 is outside a table of 10 rows");
  REQUIRE_EQUAL(error_of([&] {
                  embedding->forward(at::tensor({-1, 2}, at::kLong));
                }),
                "[cohort] VocabParallelEmbedding: index -1 is outside a table of 10 rows");
  REQUIRE_EQUAL(
      error_of([] { parallel::VocabParallelEmbedding(10, 4, parallel::VocabParallelOptions{.padding_idx = 10}); }),
      "[cohort] VocabParallelEmbedding: padding_idx 10 is not a row of a table of 10");
  REQUIRE_EQUAL(error_of([] { parallel::VocabParallelEmbedding(0, 4); }),
                "[cohort] VocabParallelEmbedding needs at least 1 row and 1 column, but got 0 and 4");
  REQUIRE_EQUAL(error_of([] { parallel::ColumnParallelLinear(0, 4); }),
                "[cohort] a parallel layer needs at least 1 input and 1 output, but got 0 and 4");
  REQUIRE_EQUAL(error_of([&] {
                  row->load_full(at::ones({6, 3}), at::ones({6}));
                }),
                "[cohort] the full weight has shape [6, 10], but [6, 3] was given");
  REQUIRE_EQUAL(error_of([&] {
                  row->load_full(at::ones({6, 10}));
                }),
                "[cohort] load_full: the layer has a bias, but none was given");
  REQUIRE_EQUAL(error_of([&] {
                  from_whole->load_full(at::ones({6, 10}), at::ones({6}));
                }),
                "[cohort] load_full: the layer has no bias, but one was given");
  barrier();  // no rank leaves while another one connects
  destroy_process_group();
}

TEST(TensorParallelLayers, SayWhatDoesNotFit) { run_workers("layers_errors", {.world_size = 4}).expect_success(); }

COHORT_WORKER(layers_unevenly) {
  init_process_group({.backend = "shm"});
  parallel::ColumnParallelLinear column(4, 4);
  parallel::RowParallelLinear row(4, 4);
  test::print_error([&] {
    if (get_rank() == 0) row(column(at::ones({2, 4})));
    barrier();
  });
}

TEST(TensorParallelErrors, ARankThatDoesNotComeMessage) {
  const auto results = run_workers("layers_unevenly");
  EXPECT_THAT(results[0].output, HasSubstr("all_reduce(SUM) of 8 float32, which is an exchange of tensor-parallel "
                                           "layers in a forward or backward pass"));
}

COHORT_WORKER(layers_end) {
  init_process_group({.backend = test::backend_of_tests()});
  auto layer =
      std::make_shared<parallel::ColumnParallelLinearImpl>(4, 4, parallel::ColumnParallelOptions{.bias = false});
  layer->weight.mutable_grad() = at::full_like(layer->weight, get_rank() + 1.0);
  const auto norm = [parameter = layer->weight] {
    return nn::utils::get_total_norm(nn::utils::gradients_of(parameter));
  };
  const auto expected = norm();
  REQUIRE(std::abs(expected.item<double>() - std::sqrt(8.0 * (1 + 4))) < 1e-5);
  { const auto copy = std::make_shared<parallel::ColumnParallelLinearImpl>(*layer); }
  REQUIRE(at::equal(norm(), expected));
  layer.reset();
  REQUIRE(at::equal(norm(), expected));
  barrier();
}

// As an optimizer does, which may outlive a layer or its copy.
TEST(TensorParallelLayers, ParametersArePartsForAsLongAsTheyLive) { run_workers("layers_end").expect_success(); }

using ColumnPtr = std::shared_ptr<parallel::ColumnParallelLinearImpl>;

ColumnPtr column_without_bias(const Group& group = {}) {
  return std::make_shared<parallel::ColumnParallelLinearImpl>(
      4, 4, parallel::ColumnParallelOptions{.group = group, .bias = false});
}

double norm_of(const at::Tensor& parameter) {
  return nn::utils::get_total_norm(nn::utils::gradients_of(parameter)).item<double>();
}

COHORT_WORKER(layers_tied) {
  init_process_group({.backend = test::backend_of_tests()});
  ColumnPtr layers[] = {column_without_bias(), column_without_bias()};
  const int first_to_end = test::worker_arguments().at(0) == "owner" ? 0 : 1;
  layers[1]->weight = layers[0]->weight;
  const auto parameter = layers[0]->weight;
  parameter.mutable_grad() = at::full_like(parameter, get_rank() + 1.0);
  const auto expected = std::sqrt(8.0 * (1 + 4));
  for (const int ending : {first_to_end, 1 - first_to_end}) {
    layers[ending].reset();
    REQUIRE(std::abs(norm_of(parameter) - expected) < 1e-5);
  }
  barrier();
}

TEST(TensorParallelLayers, TiedParametersArePartsWhicheverLayerEndsFirst) {
  for (const auto* first : {"owner", "other"}) {
    run_workers("layers_tied", {.arguments = {first}}).expect_success();
  }
}

COHORT_WORKER(layers_replaced) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto require_whole = [](const at::Tensor& tensor) {
    tensor.mutable_grad() = at::ones({2, 2}) * (get_rank() + 1);
    REQUIRE(std::abs(norm_of(tensor) - 2 * (get_rank() + 1)) < 1e-5);
  };
  auto layer = column_without_bias();
  layer->weight = at::ones({2, 2}).requires_grad_();
  require_whole(layer->weight);
  layer.reset();
  std::vector<at::Tensor> others;  // one of them might be where the first weight was
  for (int i = 0; i < 100; ++i) require_whole(others.emplace_back(at::ones({2, 2}).requires_grad_()));
  barrier();
}

TEST(TensorParallelLayers, AnotherTensorIsNoPartWhereOneWas) { run_workers("layers_replaced").expect_success(); }

COHORT_WORKER(layers_let_go) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto group = new_group({0, 1});
  const auto before = group.use_count();
  auto layer = column_without_bias(group);
  auto copy = std::make_shared<parallel::ColumnParallelLinearImpl>(*layer);
  REQUIRE(group.use_count() > before);
  layer.reset();
  copy.reset();
  // A thread of Gloo may hold the weight a moment longer than its operation lasts. Then the next layer that ends forgets it.
  while (test::backend_of_tests() == "gloo" && group.use_count() > before) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    parallel::forget_ended_shards();
  }
  REQUIRE(group.use_count() == before);
  barrier();
}

TEST(TensorParallelLayers, LetTheirGroupGoAtTheirEnd) { run_workers("layers_let_go").expect_success(); }

COHORT_WORKER(layers_print) {
  init_process_group({.backend = test::backend_of_tests()});
  std::ostringstream text;
  text << *parallel::ColumnParallelLinear(6, 10) << "\n"
       << *parallel::RowParallelLinear(10, 6) << "\n"
       << *parallel::VocabParallelEmbedding(10, 4);
  REQUIRE_EQUAL(
      text.str(),
      "cohort::parallel::ColumnParallelLinear(in_features=6, out_features=5 of 10, bias=true, gather_output=false)\n"
      "cohort::parallel::RowParallelLinear(in_features=5 of 10, out_features=6, bias=true, input_is_parallel=true)\n"
      "cohort::parallel::VocabParallelEmbedding(num_embeddings=5 of 10, embedding_dim=4)");
  barrier();  // no rank leaves while another one connects
  destroy_process_group();
}

TEST(TensorParallelLayers, PrintTheirShare) { run_workers("layers_print").expect_success(); }

}  // namespace
}  // namespace cohort
