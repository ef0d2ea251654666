// What stages may be and hand over: against one process that has all stages.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <tuple>

#include "cohort/models/gpt.h"
#include "cohort/models/gpt_stage.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/optim/grad_scaler.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "cohort/parallel/pipeline/transfer/receive_buffers.h"
#include "cohort/parallel/pipeline/transfer/tensor_header.h"
#include "tests/parallel/pipeline/small_stages.h"
#include "tests/parallel/tensor/numbers.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::draw_parameters;
using test::drawn;
using test::error_of;
using test::kNumParts;
using test::require_near;
using test::run_rank_threads;
using test::run_steps;
using test::squares;

// ---- several tensors

struct HeadOfThreeImpl : torch::nn::Module {
  HeadOfThreeImpl()
      : a(register_module("a", torch::nn::Linear(4, 6))), b(register_module("b", torch::nn::Linear(4, 3))) {
    draw_parameters(*this, 10);
  }
  // The batch lies in dimension 1.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> forward(at::Tensor x, at::Tensor scale) {
    const at::Tensor y = x.t() * scale;
    return {a(y), b(y), y.argmax(1)};
  }
  torch::nn::Linear a, b;
};
TORCH_MODULE(HeadOfThree);

struct TailOfThreeImpl : torch::nn::Module {
  TailOfThreeImpl() : c(register_module("c", torch::nn::Linear(6, 3))) { draw_parameters(*this, 20); }
  std::vector<at::Tensor> forward(at::Tensor a, at::Tensor b, at::Tensor places) {
    const at::Tensor y = c(a.tanh()) + b.detach() * places.unsqueeze(1);  // no gradient of b
    return {y.t(), y.detach().sum().view({1})};
  }
  torch::nn::Linear c;
};
TORCH_MODULE(TailOfThree);

TEST(PipelineFeatures, SeveralTensorsCutAndPutTogetherAsAsked) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const at::Tensor x = drawn({4, 11}, 1), scale = drawn({4}, 2), target = drawn({11, 3}, 3);
    HeadOfThree head, expected_head;
    TailOfThree tail, expected_tail;
    at::Tensor sum = at::zeros({1});
    std::vector<at::Tensor> outputs;
    const auto xs = x.tensor_split(kNumParts, 1), targets = target.tensor_split(kNumParts);
    for (size_t i = 0; i < xs.size(); ++i) {
      const auto [a, b, places] = expected_head->forward(xs[i], scale);
      const auto given = expected_tail->forward(a, b, places);
      squares(given[0].t(), targets[i]).backward();
      outputs.push_back(given[0].detach());
      sum += given[1];
    }

    const std::vector<PipelineStage> stages = {rank == 0 ? PipelineStage(head, 0, 2, {.group = group})
                                                         : PipelineStage(tail, 1, 2, {.group = group})};
    PipelineOptions options;
    options.loss_fn = [](const TensorList& given, const at::Tensor& t) { return squares(given.front().t(), t); };
    options.args_chunk_spec = {{.split_dim = 1}, TensorChunkSpec::replicate()};
    options.output_merge_spec = {
        {.cat_dim = 1}, MergeSpec::reduced(at::zeros({1}), [](const at::Tensor& so_far, const at::Tensor& each) {
          return so_far + each;
        })};
    options.scale_grads = false;
    PipelineSchedule schedule("1F1B", stages, kNumParts, options);
    const TensorList inputs = rank == 0 ? TensorList{x, scale} : TensorList();
    const auto merged = schedule.step(inputs, {.target = target});
    if (rank == 1) {
      require_near(merged.at(0), at::cat(outputs, 1));
      require_near(merged.at(1), sum);
      require_near(tail->c->weight.grad(), expected_tail->c->weight.grad());
      return;
    }
    REQUIRE(merged.empty());
    require_near(head->a->weight.grad(), expected_head->a->weight.grad());
    REQUIRE(!head->b->weight.grad().defined() || head->b->weight.grad().abs().max().item<double>() == 0);
  });
}

// ---- shapes beforehand, errors of shapes

torch::nn::Linear layer(uint64_t seed, int64_t in = 8, int64_t out = 8) {
  torch::nn::Linear linear(in, out);
  draw_parameters(*linear, seed);
  return linear;
}

// Two layers, one on each rank; what was thrown.
std::string error_of_step(int rank, const Group& group, const PipelineStageOptions& of_first,
                          const PipelineStageOptions& of_second, int num_steps = 1) {
  PipelineStageOptions own = rank == 0 ? of_first : of_second;
  own.group = group;
  auto linear = layer(1);
  return error_of([&] {
    PipelineSchedule schedule("GPipe", {PipelineStage(linear, rank, 2, own)}, 2, {.loss_fn = loss_of(squares)});
    for (int step = 0; step < num_steps; ++step) {
      linear->zero_grad();
      const auto x = at::ones({step + 1 == num_steps && num_steps > 1 ? 6 : 4, 8});
      schedule.step(rank == 0 ? TensorList{x} : TensorList(), {.target = x});
    }
    if (rank == 0) schedule.eval({at::ones({4, 8})});
    if (rank == 1) schedule.eval();
  });
}

PipelineStageOptions examples(std::vector<int64_t> in, std::vector<int64_t> out) {
  const auto on_meta = at::TensorOptions(at::kFloat).device(at::kMeta);
  PipelineStageOptions options;
  options.input_args = TensorList{at::empty(in, on_meta)};
  options.output_args = TensorList{at::empty(out, on_meta)};
  return options;
}

TEST(PipelineFeatures, ShapesMayBeGivenBeforehand) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto right = examples({2, 8}, {2, 8});
    REQUIRE_EQUAL(error_of_step(rank, group, right, right), "(no error)");
    const std::string what =
        "pipeline: stage 0 returned Float [2, 8] for microbatch 0, but its output_args are Float [2, 9]";
    const std::string text = error_of_step(rank, group, examples({2, 8}, {2, 9}), examples({2, 9}, {2, 8}));
    const std::string where = " ([cohort] pipeline: rank 0 ran 0SEND_F0, step 2 of 11 in its list)\n";
    // And that of rank 1, whose layer takes no zeros of this shape.
    REQUIRE(text.starts_with("[cohort] pipeline: the step failed\n  rank 0: " + what + where + "  rank 1: "));
    REQUIRE_EQUAL(error_of_step(rank, group, examples({2, 8}, {2, 8}), examples({2, 9}, {2, 8})),
                  "[cohort] pipeline: no step was made, as the ranks differ: the data from stage 0 (output_args) to "
                  "stage 1 (input_args) is Float [2, 8] on rank 0, but Float [2, 9] on rank 1" +
                      test::kPipelinesAlike);
    REQUIRE_EQUAL(
        error_of_step(rank, group, {}, right),
        "[cohort] pipeline: no step was made, as the ranks differ: PipelineStageOptions::input_args is not set "
        "on rank 0, but set on rank 1" +
            test::kPipelinesAlike);
  });
}

TEST(PipelineFeatures, ShapesOfTheFirstStepHold) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const std::string what =
        "pipeline: stage 0 returned Float [3, 8] for microbatch 0, but Float [2, 8] in the first step\n";
    const std::string text = error_of_step(rank, group, {}, {}, 2);
    REQUIRE(text.find(what) != std::string::npos);
    REQUIRE(text.find("hint: set PipelineOptions::dynamic_shapes to let shapes differ") != std::string::npos);
  });
}

TEST(PipelineFeatures, AHeaderIsNotBelieved) {
  const pipeline::TensorMetas metas = {{at::kFloat, {2, 3}, true}, {at::kLong, {}, false}};
  const at::Tensor header = pipeline::write_header(metas);
  EXPECT_TRUE(pipeline::read_header(header).metas == metas);
  EXPECT_TRUE(pipeline::read_header(pipeline::failure_header()).has_failed);
  for (const auto& [place, value] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 1}, {1, -2}, {1, 1000}, {2, 99}, {2, -1}, {3, 2}, {4, 65}, {4, -1}, {5, -1}, {5, int64_t{1} << 60}}) {
    at::Tensor damaged = header.clone();
    damaged[place] = value;
    EXPECT_THROW(pipeline::read_header(damaged), c10::DistBackendError) << place << " " << value;
  }
  EXPECT_THROW(pipeline::write_header(pipeline::TensorMetas(100)), c10::ValueError);
}

TEST(PipelineFeatures, MemoryOfWhatIsReceivedIsUsedAgainWhenNobodyHasIt) {
  pipeline::ReceiveBuffers buffers;
  const pipeline::TensorMeta meta{at::kFloat, {1 << 15}, true};
  at::Tensor first = buffers.take(meta, at::kCPU);
  const auto* const memory = first.const_data_ptr();
  at::Tensor view = first.variable_data();  // knows nothing of the tensor, only of its memory
  first.reset();
  EXPECT_NE(buffers.take(meta, at::kCPU).const_data_ptr(), memory);
  view.reset();
  at::Tensor again = buffers.take(meta, at::kCPU);
  EXPECT_EQ(again.const_data_ptr(), memory);
  EXPECT_NE(buffers.take(meta, at::kCPU).const_data_ptr(), memory);
  EXPECT_NE(buffers.take({at::kFloat, {1 << 14, 2}, true}, at::kCPU).const_data_ptr(), memory);
  buffers.end_step();
  EXPECT_EQ(buffers.size(), 3u);
  again.reset();
  again = buffers.take(meta, at::kCPU);
  buffers.end_step();
  EXPECT_EQ(buffers.size(), 1u);
}

// ---- several steps for one of the optimizer, and a scale

TEST(PipelineFeatures, AllStagesLeaveOutAStepThatOneCannotMake) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto first = layer(1), second = layer(2), own = rank == 0 ? first : second;
    const at::Tensor x = drawn({6, 8}, 3), target = drawn({6, 8}, 4);
    const at::Tensor expected = squares(second(first(x)), target);
    expected.backward();
    const TensorList wanted = {own->weight.grad().clone(), own->bias.grad().clone()};
    torch::optim::SGD optimizer(own->parameters(), 0.1);
    amp::GradScaler scaler({.device = at::kCPU, .init_scale = 4, .process_group = group});
    PipelineSchedule schedule("1F1B", {PipelineStage(own, rank, 2, {.group = group})}, 3,
                              {.loss_fn = loss_of(squares)});
    schedule.set_backward({.scaler = &scaler});
    for (const int bad : {0, 1, 2}) {  // last: none
      optimizer.zero_grad();
      std::vector<at::Tensor> losses;
      schedule.step(rank == 0 ? TensorList{x} : TensorList(), {.target = target, .losses = &losses});
      require_near(schedule.mean_loss(losses).to(at::kFloat), expected);
      const double scale = scaler.get_scale();
      REQUIRE(scale == (bad == 0 ? 4 : bad == 1 ? 2 : 1));
      require_near(own->weight.grad(), wanted[0] * scale);
      if (rank == bad) own->bias.grad()[1].fill_(INFINITY);
      scaler.step(optimizer);
      scaler.update();
      REQUIRE(scaler.has_stepped() == (bad == 2));
    }
    require_near(own->bias.grad(), wanted[1]);
    REQUIRE_EQUAL(error_of([&] { schedule.set_backward({.num_steps = 0}); }),
                  "[cohort] pipeline: num_steps is 0, but it must be at least 1");
  });
}

// ---- tied parameters

struct TiedHeadImpl : torch::nn::Module {
  TiedHeadImpl() : weight(register_parameter("weight", at::zeros({5, 8}))) {}
  at::Tensor forward(at::Tensor x) { return at::linear(x, weight); }
  at::Tensor weight;
};
TORCH_MODULE(TiedHead);

torch::nn::Sequential table_and_layer() {
  torch::nn::Sequential net(torch::nn::Embedding(5, 8), torch::nn::Linear(8, 8));
  draw_parameters(*net, 1);
  return net;
}

void descend(const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  for (at::Tensor parameter : parameters) {
    parameter -= 0.1 * parameter.grad();
    parameter.mutable_grad().reset();
  }
}

TEST(PipelineFeatures, TiedParametersHaveTheSumOfTheirGradients) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const at::Tensor words = at::arange(12).remainder(5).view({6, 2}), target = drawn({6, 2, 5}, 2);
    auto expected = table_and_layer(), net = table_and_layer();
    TiedHead head;  // its zeros are not used: the lower stage's value is
    const at::Tensor expected_table = expected->parameters()[0], table = net->parameters()[0];
    PipelineOptions options;
    options.loss_fn = loss_of(squares);
    options.tied_parameters = {rank == 0 ? TiedParameter{table, 0, 1} : TiedParameter{head->weight, 1, 0}};
    PipelineSchedule schedule(
        "1F1B", {rank == 0 ? PipelineStage(net, 0, 2, {.group = group}) : PipelineStage(head, 1, 2, {.group = group})},
        3, options);
    for (int step = 0; step < 3; ++step) {
      for (size_t i = 0; i < 3; ++i) {
        const at::Tensor output = at::linear(expected->forward(words.tensor_split(3)[i]), expected_table);
        (squares(output, target.tensor_split(3)[i]) / 3).backward();
      }
      run_steps(schedule, step + 1, rank == 0 ? TensorList{words} : TensorList(), target);
      require_near(rank == 0 ? table.grad() : head->weight.grad(), expected_table.grad(), 1e-5, "the sum");
      const auto own = rank == 0 ? net->parameters() : head->parameters();
      for (const double order : {2.0, 1.0, static_cast<double>(INFINITY)}) {
        const auto norm = nn::utils::get_total_norm(nn::utils::gradients_of(expected->parameters()), order);
        require_near(schedule.clip_grad_norm_(own, 1e6, order), norm.to(at::kDouble), 1e-5, "the norm of both stages");
      }
      descend(expected->parameters());
      descend(rank == 0 ? net->parameters() : head->parameters());
      require_near(rank == 0 ? table : head->weight, expected_table, 1e-5, "the parameter");
    }
  });
}

at::Tensor loss_of_words(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.flatten(0, 1), targets.flatten());
}

models::GPT small_gpt() {
  models::GPT model(models::GPTOptions{
      .block_size = 8, .vocab_size = 11, .n_layer = 4, .n_head = 2, .n_embd = 8, .tie_weights = true});
  draw_parameters(*model, 1);
  return model;
}

TEST(PipelineFeatures, AGptInStages) {
  for (const std::string name : {"Interleaved1F1B", "ZBVZeroBubble"}) {
    run_rank_threads(2, [&](int rank, const Group& group) {
      const at::Tensor tokens = at::arange(36).remainder(11).view({4, 9});
      const at::Tensor input = tokens.narrow(1, 0, 8), target = tokens.narrow(1, 1, 8);
      auto expected = small_gpt();
      for (int64_t i = 0; i < 4; ++i) {
        (loss_of_words(expected(input.narrow(0, i, 1)), target.narrow(0, i, 1)) / 4).backward();
      }
      auto parts = models::split_gpt(small_gpt(), 4);
      PipelineOptions options;
      options.loss_fn = loss_of(loss_of_words);
      std::vector<PipelineStage> stages;
      const std::vector<size_t> indices = {static_cast<size_t>(rank),
                                           static_cast<size_t>(name == "ZBVZeroBubble" ? 3 - rank : rank + 2)};
      for (const size_t index : indices) {
        auto& part = parts[index];
        stages.emplace_back(part, static_cast<int>(index), 4, PipelineStageOptions{.group = group});
        if (part->has_embeddings()) options.tied_parameters.push_back({part->wte->weight, 0, 3});
        if (part->has_head()) options.tied_parameters.push_back({part->lm_head->weight, 3, 0});
      }
      PipelineSchedule schedule(name, stages, 4, options);
      schedule.step(rank == 0 ? TensorList{input} : TensorList(), {.target = target});
      const auto wanted = expected->named_parameters();
      for (const size_t index : indices) {
        for (const auto& item : parts[index]->named_parameters()) {
          require_near(item.value().grad(), wanted[item.key()].grad(), 1e-5, name + " " + item.key());
        }
      }
    });
  }
}

}  // namespace
}  // namespace cohort
