#include "cohort/parallel/pipeline/pipeline_runtime.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "cohort/comm/watch/unwrapped_training.h"
#include "cohort/parallel/optim/grad_scaler.h"
#include "cohort/parallel/pipeline/extra_inputs.h"
#include "cohort/parallel/pipeline/purpose.h"
#include "cohort/parallel/precision/autocast.h"
#include "cohort/pipeline/action_text.h"
#include "cohort/pipeline/lowering.h"
#include "cohort/pipeline/stage_ranks.h"

namespace cohort::pipeline {
namespace {

bool belongs_to_forward(ActionKind kind) {
  return kind == ActionKind::kForward || kind == ActionKind::kSendForward || kind == ActionKind::kReceiveForward ||
         kind == ActionKind::kUnshard || kind == ActionKind::kReshard;
}

TensorMetas with_gradient(const TensorMetas& metas) {
  TensorMetas result;
  std::copy_if(metas.begin(), metas.end(), std::back_inserter(result),
               [](const TensorMeta& meta) { return meta.requires_grad; });
  return result;
}

// Returns the facts about shapes that the user has given.
TensorMetas given_metas(const TensorList& examples, bool has_backward) {
  TensorMetas metas = metas_of(examples);
  for (TensorMeta& meta : metas) {
    meta.requires_grad = has_backward && (c10::isFloatingType(meta.dtype) || c10::isComplexType(meta.dtype));
  }
  return metas;
}

// Operations of backward compute in the dtype of their forward, as after a region.
std::optional<Autocast> without_autocast(c10::DeviceType type, ActionKind kind) {
  if (belongs_to_forward(kind) || !at::autocast::is_autocast_available(type) ||
      !at::autocast::is_autocast_enabled(type))
    return std::nullopt;
  return std::optional<Autocast>(std::in_place, type, AutocastOptions{.enabled = false});
}

std::vector<bool> gradient_flags(const TensorMetas& metas) {
  std::vector<bool> flags;
  for (const TensorMeta& meta : metas) flags.push_back(meta.requires_grad);
  return flags;
}

[[noreturn]] void throw_other_shapes(const Action& action, const TensorMetas& metas, const TensorMetas& known,
                                     bool are_given) {
  const std::string given = text_of(metas), wanted = text_of(known);
  const std::string what = fmt::format("[cohort] pipeline: stage {} returned {} for microbatch {}, but ", action.stage,
                                       given, action.microbatch);
  if (given == wanted) {
    C10_THROW_ERROR(ValueError,
                    what +
                        "others of them require gradients than expected\n  hint: in training let all floating-point "
                        "outputs of a stage depend on trained parameters, or the same ones as in the first step");
  }
  if (are_given) C10_THROW_ERROR(ValueError, what + "its output_args are " + wanted);
  C10_THROW_ERROR(
      ValueError,
      what + wanted + " in the first step\n  hint: set PipelineOptions::dynamic_shapes to let shapes differ");
}

}  // namespace

PipelineRuntime::PipelineRuntime(PipelineOrder order, StageRanks stage_ranks, const std::vector<PipelineStage>& stages,
                                 int num_microbatches, PipelineOptions options)
    : order_(std::move(order)),
      stage_ranks_(std::move(stage_ranks)),
      num_microbatches_(num_microbatches),
      options_(std::move(options)),
      group_(stages.front().group()),
      rank_(stages.front().group_rank()),
      can_send_zero_copy_(ZeroCopySends::are_possible(group_, stages.front().group_size())) {
  for (const PipelineStage& stage : stages) {
    stages_.emplace(stage.stage_index(), std::make_unique<StageRun>(stage, num_microbatches));
  }
  check_stages();
  check_ties();
  list_ = without_overlaps(order_[static_cast<size_t>(rank_)], stage_ranks_);
  take_given_shapes();
  // Ranks train different parts: they exchange no gradients unless they are also replicated.
  if (stages.front().group_size() > 1) comm::gradients_are_exchanged();
}

void PipelineRuntime::check_stages() const {
  std::vector<int> given;
  for (const auto& [stage, run] : stages_) given.push_back(stage);
  const auto wanted = stages_of_rank(stage_ranks_, rank_);
  TORCH_CHECK_VALUE(given == wanted,
                    fmt::format("[cohort] pipeline: in this schedule rank {} has the stages [{}], but it was "
                                "given [{}]",
                                rank_, fmt::join(wanted, ", "), fmt::join(given, ", ")));
}

void PipelineRuntime::take_given_shapes() {
  size_t num_given = 0;
  for (const auto& [stage, run] : stages_) {
    const PipelineStage& each = run->stage();
    TORCH_CHECK_VALUE(each.input_args().has_value() == each.output_args().has_value(), "[cohort] pipeline: stage ",
                      stage, " has only one of input_args and output_args");
    num_given += each.input_args() ? 1 : 0;
  }
  if (num_given == 0) return;
  TORCH_CHECK_VALUE(num_given == stages_.size(),
                    "[cohort] pipeline: input_args and output_args are given for some stages and not for others\n"
                    "  hint: give them for all stages of a pipeline, or for none");
  TORCH_CHECK_VALUE(!options_.dynamic_shapes,
                    "[cohort] pipeline: dynamic_shapes is set, but stages have input_args and output_args, which apply "
                    "to every step");
  has_given_shapes_ = true;
  for (Shapes* const shapes : {&training_shapes_, &evaluation_shapes_}) {
    const bool has_backward = shapes == &training_shapes_;
    shapes->are_known = true;
    for (const Action& action : list_) {
      if (action.kind == ActionKind::kSendForward) {
        shapes->sent[key_of(action)] = given_metas(*stage_of(action).stage().output_args(), has_backward);
      } else if (action.kind == ActionKind::kReceiveForward) {
        shapes->received[key_of(action)] = given_metas(*stage_of(action).stage().input_args(), has_backward);
      }
    }
  }
}

TensorList PipelineRuntime::run(const TensorList& inputs, const StepOptions& options, bool has_backward) {
  TORCH_CHECK(!has_failed_,
              "[cohort] pipeline: an earlier step failed, so the ranks no longer agree on the next step\n  hint: start "
              "again from a checkpoint");
  has_failed_ = true;  // until the step is over
  if (!have_agreed_ && first_here().group_size() > 1) agree(has_backward);
  have_agreed_ = true;
  step_ = make_step(has_backward);
  step_->returns_outputs = options.return_outputs;
  // Others may wait for this rank in collectives of its stages, in which a rank that only sends and receives takes no part.
  if (is_initialized() && get_world_size() > first_here().group_size()) step_->failure.leave_at_once();
  TensorList merged;
  try {
    merged = run_step(inputs, options);
  } catch (...) {
    end();
    step_.reset();
    throw;
  }
  end();
  step_.reset();
  receive_buffers_.end_step();
  has_failed_ = false;
  return merged;
}

TensorList PipelineRuntime::run_step(const TensorList& inputs, const StepOptions& options) {
  const at::AutoGradMode gradients(step_->has_backward && at::GradMode::is_enabled());
  step_->failure.attempt("", [&] { begin(inputs, options); });
  // Gives the scale also to ranks without a loss.
  if (step_->has_backward && backward_.scaler) scaled(at::zeros({}, first_here().device()));
  if (step_->has_backward && !are_ties_equal_) share_tied_values();
  are_ties_equal_ = are_ties_equal_ || step_->has_backward;
  if (step_->has_backward && !earlier_gradients_) earlier_gradients_ = take_tied_gradients();
  run_list();
  step_->mailbox.finish();
  TensorList merged;
  if (!step_->failure.is_there()) step_->failure.attempt("", [&] { merged = results(options); });
  share(step_->failure, "the step failed");
  if (zero_copy_sends_) zero_copy_sends_->take_back();
  if (can_send_zero_copy_) grow_zero_copy_memory();
  step_->shapes->are_known = true;
  if (step_->has_backward && backward_.requires_gradient_sync) {
    add_tied_gradients(*earlier_gradients_);
    earlier_gradients_.reset();
  }
  return merged;
}

// Called after steps whose messages may be larger than those of earlier ones. Collective. The bytes that a step has sent are the
// most that can be in use at a time; pages are allocated when they are used.
void PipelineRuntime::grow_zero_copy_memory() {
  if (step_->shapes->are_counted && !options_.dynamic_shapes) return;
  step_->shapes->are_counted = true;
  const comm::CalledFor purpose(kStepAgreement);
  const auto own_bytes = static_cast<int64_t>(step_->mailbox.zero_copy_bytes());
  const auto num_bytes = static_cast<size_t>(comm::RankExchange(group_of_ranks()).largest({own_bytes}).front());
  if (num_bytes <= zero_copy_bytes_) return;
  // Shapes that grow from step to step must not need an allocation in each.
  zero_copy_bytes_ = std::max(num_bytes, 2 * zero_copy_bytes_);
  try {
    zero_copy_sends_ = std::make_unique<ZeroCopySends>(group_, zero_copy_bytes_);
  } catch (const c10::ValueError&) {
    can_send_zero_copy_ = false;  // there is too little memory, on all ranks: keeps using the earlier memory, if any
  }
}

std::unique_ptr<PipelineRuntime::Step> PipelineRuntime::make_step(bool has_backward) {
  auto step = std::make_unique<Step>(group_, receive_buffers_, zero_copy_sends_.get());
  step->has_backward = has_backward;
  step->shapes = has_backward ? &training_shapes_ : &evaluation_shapes_;
  step->announces = options_.dynamic_shapes || !step->shapes->are_known;
  step->outputs.resize(static_cast<size_t>(num_microbatches_));
  step->losses.resize(static_cast<size_t>(num_microbatches_));
  for (const auto& [stage, run] : stages_) run->begin(has_backward, backward_.requires_gradient_sync);
  return step;
}

void PipelineRuntime::begin(const TensorList& inputs, const StepOptions& options) {
  TORCH_CHECK(
      !step_->has_backward || at::GradMode::is_enabled(),
      "step() requires gradients to be enabled for backward computation; it should not be used under torch.no_grad() "
      "context. Please call eval() instead.");
  if (step_->has_backward) check_optimizers();
  if (is_local(0)) {
    TORCH_CHECK_VALUE(!inputs.empty(), "[cohort] pipeline: this rank has the first stage, which needs inputs");
    step_->inputs = split_into_microbatches(inputs, num_microbatches_, options_.args_chunk_spec);
  }
  step_->kwargs = split_extra_inputs("kwargs", options.kwargs, num_microbatches_, options_.kwargs_chunk_spec);
  take_targets(options);
}

void PipelineRuntime::take_targets(const StepOptions& options) {
  const int last = static_cast<int>(stage_ranks_.size()) - 1;
  if (!is_local(last) || !options_.loss_fn) return;
  TORCH_CHECK_VALUE(options.target.defined() || !step_->has_backward,
                    "[cohort] pipeline: this rank has the last stage, whose loss needs a target");
  if (!options.target.defined()) return;
  const auto targets = split_into_microbatches({options.target}, num_microbatches_);
  const c10::Device device = stages_.at(last)->stage().device();
  for (const TensorList& each : targets) step_->targets.push_back(each.front().to(device));
  step_->loss_kwargs =
      split_extra_inputs("loss_kwargs", options.loss_kwargs, num_microbatches_, options_.loss_kwargs_chunk_spec);
  for (TensorList& each : step_->loss_kwargs) {
    for (at::Tensor& tensor : each) tensor = extra_input_on(device, tensor);
  }
}

void PipelineRuntime::end() {
  for (const auto& [stage, run] : stages_) run->end();
}

void PipelineRuntime::run_list() {
  for (size_t i = 0; i < list_.size(); ++i) {
    const Action& action = list_[i];
    if (!step_->has_backward && !belongs_to_forward(action.kind)) continue;
    if (!step_->failure.is_there()) {
      step_->failure.attempt(fmt::format("[cohort] pipeline: rank {} ran {}, step {} of {} in its list", rank_,
                                         pipeline::text_of(action), i, list_.size()),
                             [&] { perform(action); });
    }
    if (step_->failure.is_there()) drain(action);
  }
  if (step_->failure.is_there()) return;
  step_->failure.attempt("", [&] {
    for (const auto& [stage, run] : stages_) run->complete();
  });
}

TensorList PipelineRuntime::results(const StepOptions& options) {
  const int last = static_cast<int>(stage_ranks_.size()) - 1;
  if (!is_local(last)) return {};
  if (options.losses && step_->losses.front().defined()) *options.losses = step_->losses;
  return options.return_outputs ? merge_microbatches(step_->outputs, options_.output_merge_spec) : TensorList();
}

void PipelineRuntime::perform(const Action& action) {
  const auto device = first_here().device().type();
  const std::optional<Autocast> region = without_autocast(device, action.kind);
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
    case ActionKind::kIdle:
      return;
  }
}

void PipelineRuntime::forward(const Action& action) {
  const int microbatch = action.microbatch;
  if (action.stage == 0) {
    run_forward(action, step_->inputs[static_cast<size_t>(microbatch)], {});
  } else if (is_local(action.stage - 1)) {
    StageRun& source = *stages_.at(action.stage - 1);
    const TensorList& inputs = source.outputs(microbatch);
    run_forward(action, inputs, gradient_flags(metas_of(inputs)));
    if (!step_->has_backward) source.drop_outputs(microbatch);
  } else {
    const Action receive{ActionKind::kReceiveForward, action.stage, microbatch};
    const auto message = take(receive);
    if (message.has_failed) return step_->failure.note_other();
    run_forward(action, message.tensors, gradient_flags(message.metas));
  }
  if (stage_of(action).stage().is_last()) finish_last(action);
}

void PipelineRuntime::run_forward(const Action& action, const TensorList& inputs,
                                  const std::vector<bool>& require_grad) {
  stage_of(action).forward(action.microbatch, inputs, require_grad,
                           step_->kwargs[static_cast<size_t>(action.microbatch)]);
}

Mailbox::Message PipelineRuntime::take(const Action& receive) {
  auto message = step_->mailbox.take(receive);
  if (receive.kind == ActionKind::kReceiveForward) step_->shapes->received[key_of(receive)] = message.metas;
  return message;
}

void PipelineRuntime::finish_last(const Action& action) {
  StageRun& run = stage_of(action);
  const auto microbatch = static_cast<size_t>(action.microbatch);
  const TensorList& outputs = run.outputs(action.microbatch);
  if (!step_->targets.empty()) {
    const at::Tensor loss = options_.loss_fn(outputs, step_->targets[microbatch], step_->loss_kwargs[microbatch]);
    TORCH_CHECK_VALUE(loss.defined() && loss.numel() == 1,
                      "[cohort] pipeline: a loss must be one number, but loss_fn returned ",
                      loss.defined() ? text_of(metas_of({loss})) : "nothing");
    step_->losses[microbatch] = step_->has_backward ? loss.detach() : loss;
    if (step_->has_backward) run.set_loss(action.microbatch, scaled(loss));
  }
  for (const at::Tensor& output : outputs) {
    if (step_->returns_outputs) step_->outputs[microbatch].push_back(step_->has_backward ? output.detach() : output);
  }
  if (!step_->has_backward) run.drop_outputs(action.microbatch);
}

// Returns the tensor with which backward begins.
at::Tensor PipelineRuntime::scaled(const at::Tensor& loss) const {
  const int64_t divisor = backward_.num_steps * (options_.scale_grads ? num_microbatches_ : 1);
  const at::Tensor scaled = backward_.scaler ? backward_.scaler->scale(loss) : loss;
  return divisor == 1 ? scaled : scaled / divisor;
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
  auto message = take({ActionKind::kReceiveBackward, action.stage, action.microbatch});
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
  if (!step_->announces && metas != known) throw_other_shapes(action, metas, known, has_given_shapes_);
  known = metas;
  step_->mailbox.send(rank_of(action.stage + 1), outputs, step_->announces);
  if (!step_->has_backward) run.drop_outputs(action.microbatch);
}

void PipelineRuntime::send_backward(const Action& action) {
  StageRun& run = stage_of(action);
  auto grads = run.take_input_grads(action.microbatch);
  const TensorMetas& metas =
      step_->shapes->received[key_of(ActionKind::kReceiveForward, action.stage, action.microbatch)];
  TensorList sent;
  for (size_t i = 0; i < metas.size(); ++i) {
    if (!metas[i].requires_grad) continue;
    const bool is_there = i < grads.size() && grads[i].defined();
    sent.push_back(is_there
                       ? std::move(grads[i])
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

void PipelineRuntime::drain(const Action& action) {
  switch (action.kind) {
    case ActionKind::kForward:
      return drop_message({ActionKind::kReceiveForward, action.stage, action.microbatch});
    case ActionKind::kFullBackward:
    case ActionKind::kBackwardInput:
      return drop_message({ActionKind::kReceiveBackward, action.stage, action.microbatch});
    case ActionKind::kSendForward:
    case ActionKind::kSendBackward:
      return send_zeros(action);
    case ActionKind::kReceiveForward:
    case ActionKind::kReceiveBackward:
      return expect(action);
    default:
      return;
  }
}

void PipelineRuntime::drop_message(const Action& receive) {
  if (step_->mailbox.expects(receive)) take(receive);
}

void PipelineRuntime::send_zeros(const Action& action) {
  const bool is_forward = action.kind == ActionKind::kSendForward;
  const int peer = rank_of(counterpart(action).stage);
  const c10::Device device = stage_of(action).stage().device();
  if (is_forward && step_->announces) {
    step_->shapes->sent[key_of(action)].clear();
    return step_->mailbox.send_failure(peer, device);
  }
  const auto& metas =
      is_forward ? step_->shapes->sent[key_of(action)]
                 : with_gradient(
                       step_->shapes->received[key_of(ActionKind::kReceiveForward, action.stage, action.microbatch)]);
  TensorList zeros;
  for (const TensorMeta& meta : metas) {
    zeros.push_back(at::zeros(meta.sizes, at::TensorOptions(meta.dtype).device(device)));
  }
  step_->mailbox.send(peer, zeros, /*announces=*/false);
}

}  // namespace cohort::pipeline
