// Evaluation and prediction of a Trainer.
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <string>

#include "cohort/train/trainer/stage_checks.h"
#include "cohort/train/trainer/trainer_core.h"

namespace cohort::train::detail {
namespace {

// Keeps the module in evaluation mode while it lives.
class EvaluationMode {
 public:
  explicit EvaluationMode(Strategy& strategy) {
    note(strategy.module());
    if (&strategy.module() != &strategy.net()) note(strategy.net());
    for (const auto& [module, was_training] : before_) module->eval();
  }
  // Restores outer modules first, as they also change the inner ones.
  ~EvaluationMode() {
    for (const auto& [module, was_training] : before_) module->train(was_training);
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  void note(torch::nn::Module& root) {
    before_.emplace_back(&root, root.is_training());
    for (const auto& module : root.modules(/*include_self=*/false)) {
      before_.emplace_back(module.get(), module->is_training());
    }
  }

  std::vector<std::pair<torch::nn::Module*, bool>> before_;
};

class EvaluationLine {
 public:
  EvaluationLine(RunProgress& progress, const char* phase, std::optional<int64_t> num_batches) : progress_(progress) {
    progress_.begin_evaluation(phase, num_batches);
  }
  ~EvaluationLine() { progress_.end_evaluation(); }
  EvaluationLine(const EvaluationLine&) = delete;
  EvaluationLine& operator=(const EvaluationLine&) = delete;

 private:
  RunProgress& progress_;
};

// The number of passes of this rank over its own batches, and of passes that repeat the last one while others have some left.
struct Passes {
  std::optional<int64_t> own;
  std::optional<int64_t> all;
};

Passes plan_passes(TrainerCore& core, const BatchFeed& feed, const BatchLimit& limit, const char* name) {
  Passes passes{.own = limited(limit, feed.num_batches(), name)};
  passes.all = passes.own;
  if (!core.strategy().evaluates_together() || !passes.own || core.place().world_size == 1) return passes;
  const auto numbers = core.largest({*passes.own, -*passes.own});
  TORCH_CHECK_VALUE(
      numbers[0] == 0 || numbers[1] != 0, "[cohort] Trainer: a rank has no batch to evaluate, and others ",
      "have up to ", numbers[0],
      "; with strategy \"fsdp\" all must run the model together\n  hint: use a smaller batch size, or fewer ranks");
  passes.all = numbers[0];
  return passes;
}

// Calls `use` with each batch. `is_own` is false if only others need this pass; its results do not count.
void for_each_batch(TrainerCore& core, BatchFeed& feed, const Passes& passes,
                    const std::function<void(bool is_own)>& use) {
  const bool asks = !feed.num_batches() && core.strategy().evaluates_together() && core.place().world_size > 1;
  feed.start();
  for (int64_t pass = 0; !passes.all || pass < *passes.all; ++pass) {
    const bool is_own = !passes.own || pass < *passes.own;
    bool has_batch = !is_own || feed.next();
    if (asks) has_batch = core.largest({has_batch ? 0 : 1})[0] == 0;
    if (!has_batch) break;
    use(is_own);
  }
  feed.stop();
}

// Takes rank 0's values of metrics that compute their own, as these may differ between ranks, which must decide alike. The first
// value is the loss.
void share_computed(TrainerCore& core, const ErasedTask& task, Metrics& values) {
  if (std::all_of(task.metrics.begin(), task.metrics.end(),
                  [](const auto& metric) { return metric.sums != nullptr; })) {
    return;
  }
  std::vector<double> of_rank_zero;
  for (const auto& [name, value] : values) of_rank_zero.push_back(core.place().rank == 0 ? value : 0.0);
  of_rank_zero = core.sums(std::move(of_rank_zero));
  for (size_t i = 0; i < values.size(); ++i) values[i].second = of_rank_zero[i];
}

// Sums everything over the ranks with one reduction.
Metrics values_of(TrainerCore& core, const ErasedTask& task, const std::string& phase, std::vector<double> numbers) {
  for (const auto& metric : task.metrics) {
    if (!metric.sums) continue;
    const auto own = metric.sums().to(at::kDouble).cpu().contiguous().view(-1);
    numbers.insert(numbers.end(), own.const_data_ptr<double>(), own.const_data_ptr<double>() + own.numel());
  }
  const auto totals = core.sums(std::move(numbers));
  Metrics values;
  if (totals[1] == 0.0) return values;
  values.emplace_back(phase + "/loss", totals[0] / totals[1]);
  auto next = totals.begin() + 2;
  for (const auto& metric : task.metrics) {
    if (metric.sums) {
      const auto count = metric.sums().numel();
      values.emplace_back(phase + "/" + metric.name, metric.value({next, next + count}));
      next += count;
    } else {
      values.emplace_back(phase + "/" + metric.name, metric.compute());
    }
  }
  share_computed(core, task, values);
  return values;
}

Passes plan_passes(TrainerCore& core, const BatchFeed& feed, const std::string& phase) {
  if (phase == "test") return plan_passes(core, feed, core.options().limit_test_batches, "limit_test_batches");
  return plan_passes(core, feed, core.options().limit_val_batches, "limit_val_batches");
}

}  // namespace

void check_batches(TrainerCore& core, const BatchFeed& feed, const char* phase) {
  (void)plan_passes(core, feed, phase);
}

Metrics evaluate(TrainerCore& core, ErasedTask& task, BatchFeed& feed, const char* phase) {
  check_can_evaluate(task);
  core.strategy().synchronize_buffers();
  const EvaluationMode mode(core.strategy());
  const at::NoGradGuard no_grad;
  for (const auto& metric : task.metrics) metric.reset();
  // On the device, so that the host does not wait for each batch.
  const at::Tensor sum = at::zeros({}, at::TensorOptions(at::kDouble).device(core.place().device));
  double count = 0.0;
  const auto passes = plan_passes(core, feed, phase);
  const EvaluationLine line(core.progress(), phase, passes.own);
  int64_t batch = 0;
  for_each_batch(core, feed, passes, [&](bool is_own) {
    const StepOutput output = run_forward(core, task, feed, /*is_training=*/false);
    if (!is_own) return;
    const auto samples = static_cast<double>(feed.batch_size());
    sum.add_(loss_number(core, output.loss) * samples);
    count += samples;
    core.progress().update_evaluation(++batch, static_cast<int64_t>(count));
    if (!output.output.defined()) return;
    for (const auto& metric : task.metrics) metric.update(output.output, output.target);
  });
  return values_of(core, task, phase, {sum.item<double>(), count});
}

std::vector<at::Tensor> predict(TrainerCore& core, ErasedTask& task, BatchFeed& feed) {
  TORCH_CHECK_VALUE(task.predict || !task.pipeline,
                    "[cohort] Trainer: the task cannot predict: its model is a stage of a pipeline\n  hint: give it "
                    "predict(net, batch) with pipeline_prediction (pipeline_step.h)");
  TORCH_CHECK_VALUE(task.predict || task.forward,
                    "[cohort] Trainer: the task cannot predict: its model does not take the first part of a batch\n"
                    "  hint: give it predict(net, batch)");
  core.strategy().synchronize_buffers();
  const EvaluationMode mode(core.strategy());
  const at::NoGradGuard no_grad;
  ErasedTask predicting = task;
  predicting.evaluate = {};
  predicting.loss_of = [](const at::Tensor& output, void*) { return StepOutput{{}, output}; };
  if (task.predict) {
    predicting.evaluate = [&task](torch::nn::Module& net, void* batch) {
      return StepOutput{{}, task.predict(net, batch)};
    };
  }
  std::vector<at::Tensor> outputs;
  const auto passes = plan_passes(core, feed, core.options().limit_predict_batches, "limit_predict_batches");
  for_each_batch(core, feed, passes, [&](bool is_own) {
    const StepOutput output = run_forward(core, predicting, feed, /*is_training=*/false);
    if (is_own) outputs.push_back(output.output);
  });
  return outputs;
}

}  // namespace cohort::train::detail
