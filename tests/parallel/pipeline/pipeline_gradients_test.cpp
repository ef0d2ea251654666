// Gradients, shared parameters, and what a step keeps: wherever the stages are.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "tests/parallel/pipeline/small_stages.h"
#include "tests/parallel/tensor/numbers.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::draw_parameters;
using test::drawn;
using test::error_of;
using test::require_near;
using test::run_rank_threads;
using test::squares;

torch::nn::Linear square_layer(uint64_t seed) {
  torch::nn::Linear linear(4, 4);
  draw_parameters(*linear, seed);
  return linear;
}

// ---- outputs that nobody uses

struct ForkImpl : torch::nn::Module {
  ForkImpl() : used(register_module("used", square_layer(3))), unused(register_module("unused", square_layer(5))) {}
  std::tuple<at::Tensor, at::Tensor> forward(at::Tensor x) { return {used(x), unused(x)}; }
  torch::nn::Linear used, unused;
};
TORCH_MODULE(Fork);

struct OfTheFirstImpl : torch::nn::Module {
  OfTheFirstImpl() : layer(register_module("layer", square_layer(7))) {}
  at::Tensor forward(at::Tensor a, at::Tensor b) { return layer(a.tanh()) + b.detach(); }
  torch::nn::Linear layer;
};
TORCH_MODULE(OfTheFirst);

TEST(PipelineGradients, OfAnOutputThatNobodyUsesAreZeroInOneProcess) {
  const at::Tensor x = drawn({8, 4}, 1), target = drawn({8, 4}, 2);
  for (const std::string name : {"Interleaved1F1B", "InterleavedZeroBubble"}) {
    auto first = square_layer(1), expected_first = square_layer(1);
    Fork fork, expected_fork;
    OfTheFirst last, expected_last;
    const auto [a, b] = expected_fork->forward(expected_first(x));
    squares(expected_last->forward(a, b), target).backward();
    PipelineSchedule schedule(name, {PipelineStage(first, 0, 3), PipelineStage(fork, 1, 3), PipelineStage(last, 2, 3)},
                              2, {.loss_fn = loss_of(squares)});
    schedule.step({x}, {.target = target});
    EXPECT_EQ(fork->unused->weight.grad().abs().max().item<double>(), 0) << name;
    require_near(fork->used->weight.grad(), expected_fork->used->weight.grad(), 1e-5, name);
    require_near(first->weight.grad(), expected_first->weight.grad(), 1e-5, name);
    require_near(last->layer->weight.grad(), expected_last->layer->weight.grad(), 1e-5, name);
  }
}

struct SharingImpl : torch::nn::Module {
  SharingImpl() : layer(register_module("layer", square_layer(3))) { register_module("again", layer); }
  at::Tensor forward(at::Tensor x) { return layer(layer(x).tanh()); }
  torch::nn::Linear layer;
};

TEST(PipelineGradients, OfAParameterThatAStageHasTwice) {
  const at::Tensor x = drawn({8, 4}, 1), target = drawn({8, 4}, 2);
  const auto stage = std::make_shared<SharingImpl>(), expected = std::make_shared<SharingImpl>();
  auto first = square_layer(1);
  squares(expected->forward(first(x)), target).backward();
  PipelineSchedule schedule("InterleavedZeroBubble", {PipelineStage(first, 0, 2), PipelineStage(stage, 1, 2)}, 2,
                            {.loss_fn = loss_of(squares)});
  schedule.step({x}, {.target = target});
  require_near(stage->layer->weight.grad(), expected->layer->weight.grad());
}

// ---- tied parameters

TEST(PipelineGradients, OfTiedParametersAddUpOverSteps) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const at::Tensor x = drawn({6, 4}, 1), target = drawn({6, 4}, 2);
    auto expected_0 = square_layer(1), expected_1 = square_layer(3), net = square_layer(rank == 0 ? 1 : 3);
    expected_1->weight = expected_0->weight;
    PipelineOptions options{.loss_fn = loss_of(squares)};
    options.tied_parameters = {{net->weight, rank, 1 - rank}};
    PipelineSchedule schedule("1F1B", {PipelineStage(net, rank, 2, {.group = group})}, 3, options);
    for (int step = 0; step < 3; ++step) {
      squares(expected_1(expected_0(x)), target).backward();
      schedule.step(rank == 0 ? TensorList{x} : TensorList(), {.target = target});
      require_near(net->weight.grad(), expected_0->weight.grad(), 1e-5, "of the tied parameter");
      require_near(net->bias.grad(), (rank == 0 ? expected_0 : expected_1)->bias.grad(), 1e-5, "of another one");
    }
  });
}

// What a schedule of two stages says to a tied parameter.
std::string error_of_tie(int rank, const Group& group, const at::Tensor& parameter) {
  PipelineOptions options{.loss_fn = loss_of(squares)};
  options.tied_parameters = {{parameter, rank, 1 - rank}};
  return error_of(
      [&] { PipelineSchedule("1F1B", {PipelineStage(square_layer(1), rank, 2, {.group = group})}, 2, options); });
}

TEST(PipelineGradients, OfTiedParametersThatAreSomewhereElseMessage) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = square_layer(1);
    const auto sharded = fully_shard(net, fsdp::Options{.process_group = group});
    REQUIRE_EQUAL(error_of_tie(rank, group, net->weight),
                  "[cohort] pipeline: of the parameters that stages 0 and 1 share, a parameter of shape [4, 4] has "
                  "been sharded by "
                  "fully_shard: its gradient is in its shards. Pass parameters() of the wrapper, not the inner "
                  "module's parameters.");
    REQUIRE_EQUAL(error_of_tie(rank, group, sharded->parameters()[0]), "(no error)");
  });
}

struct PairImpl : torch::nn::Module {
  explicit PairImpl(uint64_t seed)
      : first(register_module("first", square_layer(seed))),
        second(register_module("second", square_layer(seed + 2))) {}
  at::Tensor forward(at::Tensor x) { return second(first(x).tanh()); }
  torch::nn::Linear first, second;
};

// Of the two layers of each stage the one before has the first, and the next one the second.
TEST(PipelineGradients, OfTiesInACircle) {
  run_rank_threads(3, [](int rank, const Group& group) {
    const int next = (rank + 1) % 3, before = (rank + 2) % 3;
    const at::Tensor x = drawn({6, 4}, 1), target = drawn({6, 4}, 2);
    const auto net = std::make_shared<PairImpl>(10 * static_cast<uint64_t>(rank) + 1);
    PipelineOptions options{.loss_fn = loss_of(squares)};
    const TiedParameter with_next{net->second->weight, rank, next};
    const TiedParameter with_before{net->first->weight, rank, before};
    options.tied_parameters = {with_next, with_before};
    PipelineSchedule schedule("1F1B", {PipelineStage(net, rank, 3, {.group = group})}, 3, options);
    schedule.step(rank == 0 ? TensorList{x} : TensorList(), {.target = target});
    const auto all = [&](const at::Tensor& own) {
      const at::Tensor gathered = at::empty({3, 4, 4});
      all_gather_single(gathered, own.contiguous(), {.group = group});
      return gathered;
    };
    const auto seconds = all(with_next.parameter.grad()), firsts = all(with_before.parameter.grad());
    for (int stage = 0; stage < 3; ++stage) REQUIRE(at::equal(seconds[stage], firsts[(stage + 1) % 3]));
  });
}

TEST(PipelineGradients, OfTiesThatAreNoneMessage) {
  auto net = square_layer(1), other = square_layer(3), third = square_layer(5);
  const std::vector<PipelineStage> stages{PipelineStage(net, 0, 3), PipelineStage(other, 1, 3),
                                          PipelineStage(third, 2, 3)};
  const auto error_with = [&](const std::vector<TiedParameter>& ties) {
    PipelineOptions options{.loss_fn = loss_of(squares)};
    options.tied_parameters = ties;
    return error_of([&] { PipelineSchedule("Interleaved1F1B", stages, 3, options); });
  };
  EXPECT_EQ(error_with({{net->weight, 0, 1}, {net->weight, 0, 2}}),
            "[cohort] pipeline: a parameter of stage 0 is tied to more than one other stage\n  hint: share a parameter "
            "between two stages at most");
  EXPECT_EQ(error_with({{net->weight, 0, 1}}),
            "[cohort] pipeline: this rank has stages 0 and 1, but only stage 0 has a TiedParameter\n  hint: add a "
            "TiedParameter of stage 1, too");
  EXPECT_EQ(error_with({{net->weight, 0, 1}, {other->weight, 1, 0}}), "(no error)");
}

// ---- what ranks must have alike

struct StepOfRank {
  std::vector<TiedParameter> ties = {};
  bool scale_grads = true;
  bool has_backward = true;
};

void expect_difference(const StepOfRank& of_first, const StepOfRank& of_second, const std::string& text) {
  run_rank_threads(2, [&](int rank, const Group& group) {
    const StepOfRank& own = rank == 0 ? of_first : of_second;
    PipelineOptions options{.loss_fn = loss_of(squares), .scale_grads = own.scale_grads, .tied_parameters = own.ties};
    PipelineSchedule schedule("GPipe", {PipelineStage(square_layer(1), rank, 2, {.group = group})}, 2, options);
    const TensorList inputs = rank == 0 ? TensorList{at::ones({4, 4})} : TensorList();
    const StepOptions step{.target = at::ones({4, 4})};
    REQUIRE_EQUAL(error_of([&] { own.has_backward ? schedule.step(inputs, step) : schedule.eval(inputs, step); }),
                  text);
  });
}

TEST(PipelineGradients, RanksThatShareDifferentlyMessage) {
  const at::Tensor square = at::ones({4, 4}), row = at::ones({1, 4});
  const std::string head = "[cohort] pipeline: no step was made, as the ranks differ: ";
  expect_difference({.scale_grads = false}, {},
                    head + "scale_grads is not set on rank 0, but set on rank 1" + test::kPipelinesAlike);
  expect_difference({.has_backward = false}, {},
                    head + "the first call is eval() on rank 0, but step() on rank 1" + test::kPipelinesAlike);
  const std::string ties = head + "the list tied_parameters of ranks 0 and 1 is ";
  expect_difference({.ties = {{square, 0, 1}}}, {},
                    ties + "Float [4, 4] of stages 0 and 1 on rank 0, but nothing on rank 1" + test::kPipelinesAlike);
  expect_difference({.ties = {{square, 0, 1}, {row, 0, 1}}}, {.ties = {{row, 1, 0}, {square, 1, 0}}},
                    ties +
                        "Float [4, 4] of stages 0 and 1, Float [1, 4] of stages 0 and 1 on rank 0, but Float [1, 4] of "
                        "stages 0 and 1, "
                        "Float [4, 4] of stages 0 and 1 on rank 1" +
                        test::kPipelinesAlike);
}

TEST(PipelineGradients, TiedParametersOfOtherStagesMessage) {
  PipelineOptions options{.loss_fn = loss_of(squares)};
  const auto error = [&](int stage, int other) {
    options.tied_parameters = {{at::ones({4}), stage, other}};
    return error_of([&] { PipelineSchedule("GPipe", {PipelineStage(square_layer(1), 0, 1)}, 2, options); });
  };
  EXPECT_EQ(error(0, 1), "[cohort] pipeline: a tied parameter belongs to stages 0 and 1, but the pipeline has 1");
  EXPECT_EQ(error(-1, 0), "[cohort] pipeline: a tied parameter belongs to stages -1 and 0, but the pipeline has 1");
  run_rank_threads(2, [&](int rank, const Group& group) {
    PipelineOptions own{.loss_fn = loss_of(squares)};
    own.tied_parameters = {{at::ones({4}), 1, 0}};
    const std::string wrong_rank = error_of(
        [&] { PipelineSchedule("GPipe", {PipelineStage(square_layer(1), rank, 2, {.group = group})}, 2, own); });
    REQUIRE_EQUAL(wrong_rank, rank == 1
                                  ? "(no error)"
                                  : "[cohort] pipeline: a tied parameter belongs to stage 1, which this rank does not "
                                    "have\n  hint: name the rank's own stage first, on each of the two ranks");
  });
}

// ---- clipping

TEST(PipelineGradients, OfATensorThatIsNamedTwiceCountOnce) {
  const auto parameters = [] {
    std::vector<at::Tensor> all = {at::zeros({1}).requires_grad_(), at::zeros({1}).requires_grad_()};
    all[0].mutable_grad() = at::full({1}, 3.0);
    all[1].mutable_grad() = at::full({1}, 4.0);
    all.push_back(all[0]);
    return all;
  };
  auto all = parameters();
  EXPECT_FLOAT_EQ(nn::utils::clip_grad_norm_(all, 1.0).item<float>(), 5.0F);
  EXPECT_NEAR(all[0].grad().item<float>(), 0.6F, 1e-5);
  all = parameters();
  nn::utils::clip_grads_with_norm_(all, 1.0, at::scalar_tensor(5.0));
  EXPECT_NEAR(all[0].grad().item<float>(), 0.6F, 1e-5);
  all = parameters();
  PipelineSchedule schedule("GPipe", {PipelineStage(square_layer(1), 0, 1)}, 2, {.loss_fn = loss_of(squares)});
  EXPECT_DOUBLE_EQ(schedule.clip_grad_norm_(all, 1.0).item<double>(), 5.0);
  EXPECT_NEAR(all[0].grad().item<float>(), 0.6F, 1e-5);
}

TEST(PipelineGradients, AMeanOfNoLossesMessage) {
  run_rank_threads(2, [](int rank, const Group& group) {
    PipelineSchedule schedule("GPipe", {PipelineStage(square_layer(1), rank, 2, {.group = group})}, 2);
    const auto require_error = [&](const TensorList& losses, const std::string& text) {
      REQUIRE_EQUAL(
          error_of([&] { schedule.mean_loss(losses); }),
          (rank == 0 ? "[cohort] pipeline: the mean loss could not be computed\n  rank 1: " : "[cohort] ") + text);
    };
    require_error({}, "pipeline: mean_loss needs losses on the rank with the last stage");
    require_error({at::ones({2})}, "pipeline: a loss must be one number, but got Float [2]");
    require_near(schedule.mean_loss({at::tensor(rank + 1.0), at::tensor(rank + 3.0)}),
                 at::scalar_tensor(3.0, at::kDouble));
  });
}

// ---- what is kept

// How many of some tensors' memories are still there.
class Memories {
 public:
  void add(const at::Tensor& tensor) { all_.push_back(tensor.storage().getWeakStorageImpl()); }
  long num_alive() const {
    return std::count_if(all_.begin(), all_.end(), [](const auto& each) { return !each.expired(); });
  }

 private:
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> all_;
};

TEST(PipelineGradients, OutputsThatNobodyReadsAreLetGo) {
  Memories outputs;
  long num_alive = 0;
  const auto loss = [&](const at::Tensor& output, const at::Tensor& target) {
    num_alive = outputs.num_alive();
    outputs.add(output);
    return squares(output, target);
  };
  PipelineSchedule schedule("1F1B", {PipelineStage(square_layer(1), 0, 1)}, 4, {.loss_fn = loss_of(loss)});
  EXPECT_TRUE(schedule.step({at::ones({8, 4})}, {.target = at::ones({8, 4}), .return_outputs = false}).empty());
  EXPECT_EQ(num_alive, 0);
  EXPECT_TRUE(schedule.eval({at::ones({8, 4})}, {.target = at::ones({8, 4}), .return_outputs = false}).empty());
  EXPECT_EQ(num_alive, 0);
  EXPECT_EQ(schedule.step({at::ones({8, 4})}, {.target = at::ones({8, 4})}).at(0).size(0), 8);
}

struct NotingImpl : torch::nn::Module {
  explicit NotingImpl(Memories* inputs) : inputs(inputs), layer(register_module("layer", square_layer(1))) {}
  at::Tensor forward(at::Tensor x) {
    inputs->add(x);
    return layer(x);
  }
  Memories* inputs;
  torch::nn::Linear layer;
};
TORCH_MODULE(Noting);

TEST(PipelineGradients, InputsOfAnEvaluationAreLetGo) {
  Memories inputs;
  long num_alive = 0;
  const auto loss = [&](const at::Tensor& output, const at::Tensor& target) {
    num_alive = inputs.num_alive();
    return squares(output, target);
  };
  PipelineSchedule schedule("LoopedBFS", {PipelineStage(square_layer(1), 0, 2), PipelineStage(Noting(&inputs), 1, 2)},
                            4, {.loss_fn = loss_of(loss)});
  schedule.eval({at::ones({8, 4})}, {.target = at::ones({8, 4})});
  EXPECT_LE(num_alive, 1);
}

// ---- lists, forecasts

TEST(PipelineGradients, CommunicationOfYourOwnIsNotDeferredMessage) {
  const auto own = square_layer(1);
  const PipelineStage stage(own, 0, 1);
  const PipelineSchedule schedule("GPipe", {stage}, 2);
  EXPECT_EQ(error_of([&] {
              PipelineSchedule(schedule.order(), PipelineCsv::kComputeComms, {stage}, 2, {.defer_receives = true});
            }),
            "[cohort] pipeline: defer_receives is for lists to which the schedule adds communication, but a list of "
            "format kComputeComms has its own");
}

TEST(PipelineGradients, ForecastsKnowThatTheFirstStageHasOneBackward) {
  using pipeline::Action, pipeline::ActionKind;
  constexpr auto kF = ActionKind::kForward, kI = ActionKind::kBackwardInput, kW = ActionKind::kBackwardWeight;
  const pipeline::PipelineOrder order = {{{kF, 0, 0}, {kI, 0, 0}, {kF, 0, 1}, {kW, 0, 0}, {kI, 0, 1}, {kW, 0, 1}},
                                         {{kF, 1, 0}, {kI, 1, 0}, {kW, 1, 0}, {kF, 1, 1}, {kI, 1, 1}, {kW, 1, 1}}};
  const auto forecast =
      pipeline::forecast_pipeline(order, 2, 2, {.forward = 1.0, .backward_input = 2.0, .backward_weight = 0.5});
  // Rank 0: F0 until 1, waits for rank 1 until 4, F1 until 5, both parts of backward of 0 until 7.5, of 1 from 8 on.
  EXPECT_DOUBLE_EQ(forecast.duration, 10.5);
}

}  // namespace
}  // namespace cohort
