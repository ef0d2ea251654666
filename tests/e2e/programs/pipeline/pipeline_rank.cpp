// Trains one step of a fixed model by every schedule, on two ranks: tests/e2e/pipeline/pipeline_python_rank.py is the same
// program. Prints losses, outputs and sums over each gradient.
#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"

namespace {

constexpr int kNumParts = 4;

at::Tensor waves(std::vector<int64_t> shape, double phase) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return (at::arange(count, at::kDouble) * 0.37 + phase).sin().div(2).to(at::kFloat).view(shape);
}

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int stage)
      : wide(register_module("wide", torch::nn::Linear(8, 16))),
        narrow(register_module("narrow", torch::nn::Linear(16, 8))) {
    const at::NoGradGuard no_grad;
    double phase = 13.0 * stage;
    for (at::Tensor& parameter : parameters()) parameter.copy_(waves(parameter.sizes().vec(), phase += 5.0));
  }
  at::Tensor forward(at::Tensor x) { return x + narrow(at::tanh(wide(x))); }
  torch::nn::Linear wide, narrow;
};
TORCH_MODULE(Block);

struct MaskedImpl : BlockImpl {
  using BlockImpl::BlockImpl;
  at::Tensor forward(at::Tensor x, at::Tensor mask, at::Tensor places) {
    return x + narrow(at::tanh(wide(x + places))) * mask.t();
  }
};
TORCH_MODULE(Masked);

void print(const std::string& what, const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().to(at::kDouble).flatten();
  const at::Tensor weights = at::arange(1, values.numel() + 1, at::kDouble).rsqrt();
  std::printf("%s %.9f %.9f %.9f\n", what.c_str(), values.sum().item<double>(), values.abs().sum().item<double>(),
              (values * weights).sum().item<double>());
}

std::vector<int> stages_of(const std::string& name, int rank) {
  if (name == "GPipe" || name == "1F1B") return {rank};
  return name == "ZBVZeroBubble" || name == "DualPipeV" ? std::vector<int>{rank, 3 - rank}
                                                        : std::vector<int>{rank, rank + 2};
}

// `step`: with the target; evaluation has all of it but that.
template <class Part>
void train(const std::string& name, const std::string& head, cohort::PipelineOptions options,
           cohort::StepOptions step) {
  const int rank = cohort::get_rank();
  const auto indices = stages_of(name, rank);
  std::vector<Part> blocks;
  std::vector<cohort::PipelineStage> stages;
  for (const int index : indices) {
    blocks.emplace_back(index);
    stages.emplace_back(blocks.back(), index, 2 * static_cast<int>(indices.size()));
  }
  cohort::PipelineSchedule schedule(name, stages, kNumParts, std::move(options));
  const auto x = waves(step.target.sizes().vec(), 1.0);
  const cohort::TensorList inputs = rank == 0 ? cohort::TensorList{x} : cohort::TensorList();
  std::vector<at::Tensor> losses;
  step.losses = &losses;
  const auto outputs = schedule.step(inputs, step);
  for (const at::Tensor& output : outputs) print(head + " output", output);
  if (!losses.empty()) print(head + " losses", at::stack(losses));
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (const auto& item : blocks[i]->named_parameters()) {
      print(head + " stage " + std::to_string(indices[i]) + " " + item.key(), item.value().grad());
    }
  }
  step.target.reset();
  const auto evaluated = schedule.eval(inputs, step);
  for (const at::Tensor& output : evaluated) print(head + " evaluated", output);
}

void train_plain(const std::string& name, int64_t rows, bool scales) {
  const auto loss = cohort::loss_of([](const at::Tensor& x, const at::Tensor& y) { return at::mse_loss(x, y); });
  train<Block>(name, name + " " + std::to_string(rows) + (scales ? " scaled" : " whole"),
               {.loss_fn = loss, .scale_grads = scales}, {.target = waves({rows, 8}, 2.0)});
}

// The mask has a column for each row, places are for all of them; so are weights of columns in the loss.
void train_with_kwargs(const std::string& name, int64_t rows) {
  const auto weighted = [](auto& x, auto& y, auto& of_rows, auto& of_columns) {
    return ((x - y).square() * of_rows * of_columns).mean();
  };
  train<Masked>(name, name + " " + std::to_string(rows) + " kwargs",
                {.loss_fn = cohort::loss_of(weighted),
                 .kwargs_chunk_spec = {{.split_dim = 1}, cohort::TensorChunkSpec::replicate()},
                 .loss_kwargs_chunk_spec = {{}, cohort::TensorChunkSpec::replicate()}},
                {.target = waves({rows, 8}, 2.0),
                 .kwargs = {waves({1, rows}, 3.0), waves({8}, 4.0)},
                 .loss_kwargs = {waves({rows, 1}, 5.0) + 1, waves({8}, 6.0) + 1}});
}

}  // namespace

int main() {
  cohort::init_process_group();
  for (const std::string& name : cohort::pipeline::pipeline_schedule_names()) {
    for (const bool scales : {true, false}) train_plain(name, 8, scales);
    train_with_kwargs(name, 8);
  }
  train_plain("1F1B", 10, true);  // microbatches of 3 and 2 rows
  cohort::destroy_process_group();
  return 0;
}
