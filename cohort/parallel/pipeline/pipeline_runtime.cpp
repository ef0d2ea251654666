#include "cohort/parallel/pipeline/pipeline_runtime.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor_split.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "cohort/pipeline/action_text.h"
#include "cohort/pipeline/stage_ranks.h"

namespace cohort::pipeline {
namespace {

bool belongs_to_forward(ActionKind kind) {
  return kind == ActionKind::kForward || kind == ActionKind::kSendForward || kind == ActionKind::kReceiveForward ||
         kind == ActionKind::kUnshard || kind == ActionKind::kReshard || kind == ActionKind::kOverlap;
}

TensorMetas with_gradient(const TensorMetas& metas) {
  TensorMetas result;
  std::copy_if(metas.begin(), metas.end(), std::back_inserter(result),
               [](const TensorMeta& meta) { return meta.requires_grad; });
  return result;
}

std::vector<bool> gradient_flags(const TensorMetas& metas) {
  std::vector<bool> flags;
  for (const TensorMeta& meta : metas) flags.push_back(meta.requires_grad);
  return flags;
}

}  // namespace

PipelineRuntime::PipelineRuntime(PipelineOrder order, StageRanks stage_ranks, const std::vector<PipelineStage>& stages,
                                 int num_microbatches, PipelineOptions options)
    : order_(std::move(order)),
      stage_ranks_(std::move(stage_ranks)),
      num_microbatches_(num_microbatches),
      options_(std::move(options)),
      group_(stages.front().group()),
      rank_(stages.front().group_rank()) {
  for (const PipelineStage& stage : stages) {
    stages_.emplace(stage.stage_index(), std::make_unique<StageRun>(stage, num_microbatches));
  }
  check_stages();
}

void PipelineRuntime::check_stages() const {
  std::vector<int> given;
  for (const auto& [stage, run] : stages_) given.push_back(stage);
  const auto wanted = stages_of_rank(stage_ranks_, rank_);
  TORCH_CHECK_VALUE(given == wanted,
                    fmt::format("[cohort] pipeline: in this schedule rank {} has the stages [{}], but it was "
                                "given [{}]",
                                rank_, fmt::join(wanted, ", "), fmt::join(given, ", ")));
  for (const Action& action : order_[static_cast<size_t>(rank_)]) {
    const bool is_part = action.kind == ActionKind::kBackwardInput;
    TORCH_CHECK_VALUE(
        !is_part || !stages_.at(action.stage)->is_sharded(),
        "[cohort] pipeline: fully_shard reduces gradients in backward passes, but this schedule computes those of "
        "stage ",
        action.stage,
        " in two parts\n  hint: choose 1F1B, Interleaved1F1B, LoopedBFS or GPipe, or DistributedDataParallel");
  }
}

TensorList PipelineRuntime::run(const TensorList& inputs, const StepOptions& options, bool has_backward) {
  TORCH_CHECK(
      !has_failed_,
      "[cohort] pipeline: an earlier step failed, so the ranks no longer agree on what comes next\n  hint: start "
      "again from a checkpoint");
  TORCH_CHECK(
      !has_backward || at::GradMode::is_enabled(),
      "step() requires gradients to be enabled for backward computation; it should not be used under torch.no_grad() "
      "context. Please call eval() instead.");
  step_ = begin(inputs, options, has_backward);
  has_failed_ = true;  // until it is over
  try {
    if (has_backward && !step_->shapes->are_known) share_tied_values();
    run_list();
    step_->mailbox.finish();
    if (has_backward) {
      add_tied_gradients();
      if (options_.scale_grads) scale_gradients();
    }
  } catch (...) {
    end();
    step_.reset();
    throw;
  }
  step_->shapes->are_known = true;
  has_failed_ = false;
  end();
  auto merged = results(options);
  step_.reset();
  return merged;
}

std::unique_ptr<PipelineRuntime::Step> PipelineRuntime::begin(const TensorList& inputs, const StepOptions& options,
                                                              bool has_backward) {
  auto step = std::make_unique<Step>(group_);
  step->has_backward = has_backward;
  step->shapes = has_backward ? &training_shapes_ : &evaluation_shapes_;
  step->announces = options_.dynamic_shapes || !step->shapes->are_known;
  const int last = static_cast<int>(stage_ranks_.size()) - 1;
  if (is_local(0)) {
    TORCH_CHECK_VALUE(!inputs.empty(), "[cohort] pipeline: this rank has the first stage, which needs inputs");
    step->inputs = split_into_microbatches(inputs, num_microbatches_, options_.args_chunk_spec);
  }
  if (is_local(last) && options_.loss_fn) {
    TORCH_CHECK_VALUE(options.target.defined() || !has_backward,
                      "[cohort] pipeline: this rank has the last stage, whose loss needs a target");
    if (options.target.defined()) {
      const auto targets = split_into_microbatches({options.target}, num_microbatches_);
      for (const TensorList& each : targets) step->targets.push_back(each.front());
    }
  }
  step->outputs.resize(static_cast<size_t>(num_microbatches_));
  step->losses.resize(static_cast<size_t>(num_microbatches_));
  for (const auto& [stage, run] : stages_) run->begin(has_backward);
  return step;
}

void PipelineRuntime::end() {
  for (const auto& [stage, run] : stages_) run->end();
}

void PipelineRuntime::run_list() {
  const ActionList& list = order_[static_cast<size_t>(rank_)];
  for (size_t i = 0; i < list.size(); ++i) {
    try {
      perform(list[i]);
    } catch (c10::Error& error) {
      error.add_context(fmt::format("[cohort] pipeline: rank {} ran {}, step {} of {} in its list", rank_,
                                    pipeline::text_of(list[i]), i, list.size()));
      throw;
    }
  }
}

TensorList PipelineRuntime::results(const StepOptions& options) {
  const int last = static_cast<int>(stage_ranks_.size()) - 1;
  if (!is_local(last)) return {};
  if (options.losses && step_->losses.front().defined()) *options.losses = step_->losses;
  return options.return_outputs ? merge_microbatches(step_->outputs, options_.output_merge_spec) : TensorList();
}

void PipelineRuntime::perform(const Action& action) {
  if (!step_->has_backward && !belongs_to_forward(action.kind)) return;
  switch (action.kind) {
    case ActionKind::kForward:
      return forward(action);
    case ActionKind::kFullBackward:
    case ActionKind::kBackwardInput:
      return backward(action);
    case ActionKind::kBackwardWeight:
      return stage_of(action).backward_weight(action.microbatch);
    case ActionKind::kSendForward:
      return send_forward(action);
    case ActionKind::kSendBackward:
      return send_backward(action);
    case ActionKind::kReceiveForward:
    case ActionKind::kReceiveBackward:
      return expect(action);
    case ActionKind::kUnshard:
      return stage_of(action).unshard();
    case ActionKind::kReshard:
      return stage_of(action).reshard();
    case ActionKind::kReduceGrad:
      return stage_of(action).reduce_grad();
    case ActionKind::kOverlap:
      for (const Action& part : action.parts) perform(part);
      return;
    case ActionKind::kIdle:
      return;
  }
}

void PipelineRuntime::forward(const Action& action) {
  StageRun& run = stage_of(action);
  const int microbatch = action.microbatch;
  if (action.stage == 0) {
    run.forward(microbatch, step_->inputs[static_cast<size_t>(microbatch)], {});
  } else if (is_local(action.stage - 1)) {
    StageRun& source = *stages_.at(action.stage - 1);
    const TensorList& inputs = source.outputs(microbatch);
    run.forward(microbatch, inputs, gradient_flags(metas_of(inputs)));
    if (!step_->has_backward) source.drop_outputs(microbatch);
  } else {
    const Action receive{ActionKind::kReceiveForward, action.stage, microbatch};
    const auto message = step_->mailbox.take(receive);
    step_->shapes->received[key_of(receive)] = message.metas;
    run.forward(microbatch, message.tensors, gradient_flags(message.metas));
  }
  if (run.stage().is_last()) finish_last(action);
}

void PipelineRuntime::finish_last(const Action& action) {
  StageRun& run = stage_of(action);
  const auto microbatch = static_cast<size_t>(action.microbatch);
  const TensorList& outputs = run.outputs(action.microbatch);
  if (!step_->targets.empty()) {
    at::Tensor loss = options_.loss_fn(outputs, step_->targets[microbatch]);
    TORCH_CHECK_VALUE(loss.defined() && loss.numel() == 1, "[cohort] pipeline: a loss is one number, but loss_fn gave ",
                      loss.defined() ? text_of(metas_of({loss})) : "nothing");
    step_->losses[microbatch] = step_->has_backward ? loss.detach() : loss;
    if (step_->has_backward) run.set_loss(action.microbatch, std::move(loss));
  }
  for (const at::Tensor& output : outputs) {
    step_->outputs[microbatch].push_back(step_->has_backward ? output.detach() : output);
  }
  if (!step_->has_backward) run.drop_outputs(action.microbatch);
}

void PipelineRuntime::backward(const Action& action) {
  StageRun& run = stage_of(action);
  TensorList grads;
  if (!run.stage().is_last()) {
    grads = is_local(action.stage + 1) ? stages_.at(action.stage + 1)->take_input_grads(action.microbatch)
                                       : received_grads(action);
  }
  run.backward(action.microbatch, grads, action.kind == ActionKind::kBackwardInput);
}

TensorList PipelineRuntime::received_grads(const Action& action) {
  auto message = step_->mailbox.take({ActionKind::kReceiveBackward, action.stage, action.microbatch});
  TensorList grads;
  size_t next = 0;
  for (const at::Tensor& output : stage_of(action).outputs(action.microbatch)) {
    grads.push_back(output.requires_grad() ? message.tensors[next++] : at::Tensor());
  }
  return grads;
}

void PipelineRuntime::send_forward(const Action& action) {
  StageRun& run = stage_of(action);
  const TensorList& outputs = run.outputs(action.microbatch);
  const auto metas = metas_of(outputs);
  TensorMetas& known = step_->shapes->sent[key_of(action)];
  TORCH_CHECK_VALUE(step_->announces || metas == known, "[cohort] pipeline: stage ", action.stage, " gives ",
                    text_of(metas), " for microbatch ", action.microbatch, ", but gave ", text_of(known),
                    " in the first step\n  hint: PipelineOptions::dynamic_shapes lets shapes differ");
  known = metas;
  step_->mailbox.send(rank_of(action.stage + 1), outputs, step_->announces);
  if (!step_->has_backward) run.drop_outputs(action.microbatch);
}

void PipelineRuntime::send_backward(const Action& action) {
  StageRun& run = stage_of(action);
  const auto grads = run.take_input_grads(action.microbatch);
  const TensorMetas& metas =
      step_->shapes->received[key_of(ActionKind::kReceiveForward, action.stage, action.microbatch)];
  TensorList sent;
  for (size_t i = 0; i < metas.size(); ++i) {
    if (!metas[i].requires_grad) continue;
    const bool is_there = i < grads.size() && grads[i].defined();
    sent.push_back(is_there
                       ? grads[i]
                       : at::zeros(metas[i].sizes, at::TensorOptions(metas[i].dtype).device(run.stage().device())));
  }
  step_->mailbox.send(rank_of(action.stage - 1), sent, /*announces=*/false);
}

void PipelineRuntime::expect(const Action& action) {
  const int source = counterpart(action).stage;
  step_->mailbox.expect(
      action, rank_of(source), stage_of(action).stage().device(), [this, action] { return metas_of_receive(action); },
      /*is_posted=*/!step_->announces);
}

std::optional<TensorMetas> PipelineRuntime::metas_of_receive(const Action& receive) const {
  if (receive.kind == ActionKind::kReceiveBackward) {
    return with_gradient(step_->shapes->sent[key_of(ActionKind::kSendForward, receive.stage, receive.microbatch)]);
  }
  if (step_->announces) return std::nullopt;
  return step_->shapes->received[key_of(receive)];
}

}  // namespace cohort::pipeline
