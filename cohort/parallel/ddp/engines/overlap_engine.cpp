#include "cohort/parallel/ddp/engines/overlap_engine.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

#include "cohort/base/log/log.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/error/exception_text.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/group/group_backend.h"
#include "cohort/comm/group/job_warning.h"
#include "cohort/parallel/ddp/buckets/bucket_memory.h"
#include "cohort/parallel/ddp/engines/unfinished_step.h"
#include "cohort/parallel/ddp/settings/hook_result.h"
#include "cohort/parallel/ddp/settings/reducer_errors.h"

namespace cohort::ddp {

OverlapEngine::OverlapEngine(EngineInput input)
    : input_(std::move(input)),
      buckets_(input_),
      order_(input_),
      reduction_(input_),
      unused_(input_),
      graph_(input_.options.static_graph, input_.parameters.size()),
      caller_streams_(input_.parameters) {
  install_buckets(input_.first_plan);
  for (size_t i = 0; i < input_.parameters.size(); ++i) {
    hooks_.push_back(
        parallel::add_gradient_hook(input_.parameters[i], [this, i](const at::Tensor&) { on_gradient(i); }));
  }
}

OverlapEngine::~OverlapEngine() {
  try {
    buckets_.abandon_gradients();
  } catch (const std::exception& error) {
    base::log_warning("could not copy the gradients of an unfinished step: " + comm::text_of(error));
  }
}

void OverlapEngine::install_buckets(const BucketPlan& plan) {
  times_.set_buckets(plan.size());
  buckets_.install(plan, reduction_.has_hook());
}

void OverlapEngine::reset() {
  step_ = {};
  is_in_hook_ = false;
  futures_.clear();
  order_.forget();
  unused_.forget();
  graph_.forget();
  reduction_.divide_next_by(0);
  buckets_.forget_reductions();
  buckets_.abandon_gradients();
}

void OverlapEngine::update_process_group(const Group& group) {
  input_.options.process_group = group;
  reduction_.use_group();
  install_buckets(input_.first_plan);  // even if some ranks were lost during an agreement and others have new buckets
}

void OverlapEngine::register_comm_hook(CommHook hook) {
  TORCH_CHECK(!step_.is_unfinished(),
              "[cohort] register_comm_hook cannot be called while backward runs, or after an unfinished one: buckets "
              "have gradients already. Register the communication hook before backward().");
  const bool lack_buckets = !reduction_.needs_buckets();
  reduction_.set_hook(std::move(hook));
  if (lack_buckets || buckets_.has_in_place()) install_buckets(buckets_.plan());
}

// ---- a step begins

void OverlapEngine::check_prior_step_finished() const {
  TORCH_CHECK(step_.failure().empty(), failed_before_message(input_.audience, step_.failure()));
  if (!step_.is_unfinished()) return;
  throw_unfinished(input_.options, input_.audience,
                   "prepare() cannot begin a step, because the step before is not finished", buckets_.ready_flags());
}

void OverlapEngine::prepare_forward() {
  if (is_removed()) return;
  check_prior_step_finished();
  times_.begin_forward();
  if (!order_.is_complete()) return;
  const auto purpose = called_for(input_.audience, kBucketAgreement, kReducerBuckets);
  install_buckets(order_.rebuild());
}

void OverlapEngine::prepare(const std::vector<at::Tensor>& outputs) {
  if (is_removed()) return;
  check_prior_step_finished();
  times_.begin_step();
  caller_streams_.remember();
  reduction_.prepare();
  step_.enter(StepPhase::kPrepared);
  buckets_.prepare();
  order_.clear();
  graph_.prepare();
  if (graph_.is_learning()) watch(outputs);
  unused_.prepare(outputs);
}

// Waits for the end of the backward pass that begins at one of the outputs. A pass within it, such as a checkpointed layer's, may
// bring the first gradient, and ends earlier.
void OverlapEngine::watch(const std::vector<at::Tensor>& outputs) {
  for (const auto& output : outputs) {
    if (!output.requires_grad() || output.is_leaf()) continue;
    output.register_hook([this, alive = std::weak_ptr(alive_)](const at::Tensor&) {
      if (alive.expired()) return;
      const std::lock_guard lock(mutex_);
      if (step_.is_expecting() && graph_.is_learning()) queue_first_finish();
    });
  }
}

// ---- gradients arrive

ExtraGradient OverlapEngine::extra_gradient(size_t index) const {
  const auto& group = input_.options.process_group;
  return {input_.audience,      group->getRank(), group->getSize(), index, input_.options.parameter_names,
          unused_.is_searched()};
}

void OverlapEngine::on_gradient(size_t index) {
  if (at::GradMode::is_enabled()) comm::warn_once_per_job(create_graph_message());
  Replaced replaced;  // destroyed after the lock is released
  std::unique_lock lock(mutex_);
  unused_.note_use(index);
  if (!step_.is_expecting()) return;
  times_.gradient(index);
  if (graph_.is_learning()) {
    queue_first_finish();
    step_.enter(StepPhase::kReducing);
    graph_.count(index);
    return;
  }
  mark_found_unused();
  TORCH_CHECK(!graph_.is_extra(index), graph_changed_message(extra_gradient(index)));
  if (!graph_.take_last(index)) return;
  order_.note(index);
  mark_ready(index, /*is_used=*/true);
  replaced.swap(replaced_);
  if (reduction_.has_hook()) run_hook(lock);
  if (buckets_.are_all_launched()) queue_finish();
}

void OverlapEngine::mark_found_unused() {
  if (!unused_.begin_marking()) return;
  for (const size_t index : unused_.here()) mark_ready(index, /*is_used=*/false);
}

void OverlapEngine::mark_ready(size_t index, bool is_used) {
  TORCH_CHECK(!buckets_.is_ready(index), ready_twice_message(extra_gradient(index)));
  step_.enter(StepPhase::kReducing);
  const auto place = buckets_.note_ready(index);
  auto& bucket = buckets_[place.bucket];
  if (reduction_.needs_buckets()) fill_slot(index, place, is_used);
  if (--bucket.num_pending > 0) return;
  if (reduction_.takes_all(bucket)) fill_all_slots(bucket);
  times_.ready(place.bucket);
  launch_full_buckets();
}

// See [Note: streams].
void OverlapEngine::fill_slot(size_t index, BucketSet::Place place, bool is_used) {
  const auto& parameter = input_.parameters[index];
  auto& bucket = buckets_[place.bucket];
  const c10::OptionalStreamGuard guard(is_used ? std::nullopt : caller_streams_.on(parameter.device()));
  used_in_current_stream(parameter.grad());  // the bucket replaces it
  if (!is_used) unused_.save(index);
  if (!reduction_.takes_all(bucket)) {
    let_go(bucket.take(place.slot, parameter, reduction_.divisor(), reduction_.averaging()));
  }
  bucket.filling.add_current(parameter.device(), bucket.contents());
}

void OverlapEngine::fill_all_slots(Bucket& bucket) {
  const auto& parameters = input_.parameters;
  const c10::OptionalStreamGuard guard(bucket.filling.join());
  for (auto& gradient : bucket.take_all(parameters, reduction_.divisor(), reduction_.averaging())) {
    let_go(std::move(gradient));
  }
  bucket.filling.add_current(parameters[bucket.indices().front()].device(), bucket.contents());
}

// ---- buckets are launched

void OverlapEngine::launch_full_buckets() {
  if (reduction_.has_hook()) return;  // run_hook() does
  for (; buckets_.is_next_full(); buckets_.advance()) {
    const auto number = buckets_.next();
    const c10::OptionalStreamGuard guard(buckets_[number].filling.join());
    auto& bucket = buckets_[number];
    if (!reduction_.needs_buckets() || reduction_.is_left_to_end(number, buckets_.size()) || is_skipped(bucket)) {
      continue;
    }
    times_.launched(number);
    bucket.work = reduction_.reduce(bucket, mode());
  }
  if (buckets_.are_all_launched() && unused_.is_searched() && !reduction_.runs_in_caller()) reduce_use_counts();
}

// See [Note: communication hook].
void OverlapEngine::run_hook(std::unique_lock<std::mutex>& lock) {
  if (is_in_hook_) return;
  is_in_hook_ = true;
  for (; buckets_.is_next_full(); buckets_.advance()) {
    const auto number = buckets_.next();
    auto& bucket = buckets_[number];
    const c10::OptionalStreamGuard guard(bucket.filling.join());  // see [Note: streams]
    if (is_skipped(bucket)) continue;
    times_.launched(number);
    lock.unlock();
    auto future = call_hook(number, bucket.contents());
    lock.lock();
    bucket.future = std::move(future);
  }
  is_in_hook_ = false;
  if (buckets_.are_all_launched() && unused_.is_searched() && !reduction_.runs_in_caller()) reduce_use_counts();
}

CommHookFuture OverlapEngine::call_hook(size_t bucket, const at::Tensor& buffer) try {
  return reduction_.call_hook(buckets_, bucket, buffer);
} catch (const std::exception& error) {
  const std::lock_guard lock(mutex_);
  is_in_hook_ = false;
  step_.fail(error);
  throw;
}

void OverlapEngine::reduce_use_counts() {
  unused_.count([this](const at::Tensor& uses) { return reduction_.all_reduce(uses, mode()); });
}

// ---- the step ends: in the thread that ends backward, without the lock

void OverlapEngine::queue_first_finish() {
  if (!graph_.queue_finish()) return;
  torch::autograd::Engine::get_default_engine().queue_callback([this] { finish_first_static_step(); });
}

void OverlapEngine::queue_finish() {
  torch::autograd::Engine::get_default_engine().queue_callback([this] { finish(); });
}

void OverlapEngine::finalize() {
  if (!step_.is_expecting()) return;
  TORCH_CHECK(step_.failure().empty(), step_.failure());
  if (graph_.is_learning()) return finish_first_static_step();
  if (!unused_.is_allowed()) {
    throw_unfinished(input_.options, input_.audience, "finalize() cannot end the step", buckets_.ready_flags());
  }
  mark_found_unused();
  for (size_t i = 0; i < input_.parameters.size(); ++i) {
    if (!buckets_.is_ready(i)) mark_ready(i, /*is_used=*/false);
  }
  finish_buckets();
}

void OverlapEngine::finish_first_static_step() {
  if (!step_.is_expecting()) return;
  std::vector<size_t> unused;
  for (size_t i = 0; i < input_.parameters.size(); ++i) {
    if (!graph_.is_used(i)) unused.push_back(i);
  }
  unused_.set_here(std::move(unused));
  const bool shares = graph_.share();
  if (shares) reduce_use_counts();
  for (size_t i = 0; i < input_.parameters.size(); ++i) mark_ready(i, graph_.is_used(i));
  finish_buckets();
  graph_.end_learning();
  // The others have had an order since a step in which this rank had no data.
  if (!shares) order_.note_any_order();
}

// Called after gradients were marked outside on_gradient().
void OverlapEngine::finish_buckets() {
  if (reduction_.has_hook()) {
    std::unique_lock lock(mutex_);
    run_hook(lock);
  }
  finish();
}

void OverlapEngine::finish() {
  step_.enter(StepPhase::kFinishing);
  if (input_.options.static_graph && !graph_.is_learning()) order_.note_all(unused_.here());
  try {
    if (reduction_.needs_buckets()) {
      hand_out_gradients();
    } else if (observer_) {
      tell_observer();
    }
    if (observer_) observer_->on_end();
    wait_for_all(futures_);
  } catch (const std::exception& error) {
    step_.fail(error);
    buckets_.abandon_gradients();
    throw;
  }
  times_.end_step();
  replaced_.clear();
  unused_.finish();
  step_.enter(StepPhase::kIdle);
}

// See [Note: last bucket] in bucket_reduction.h.
void OverlapEngine::reduce_at_end(size_t number) {
  auto& bucket = buckets_[number];
  if (reduction_.has_hook() || !reduction_.is_left_to_end(number, buckets_.size()) || bucket.work ||
      is_skipped(bucket)) {
    return;
  }
  times_.launched(number);
  bucket.work = reduction_.reduce(bucket, mode());
  times_.finished(number);  // this thread has reduced it
}

// The counts that tell which gradients no rank has come after all buckets.
void OverlapEngine::reduce_rest() {
  for (size_t i = 0; i < buckets_.size(); ++i) reduce_at_end(i);
  reduce_use_counts();
}

void OverlapEngine::await_reduction(Bucket& bucket) {
  if (is_skipped(bucket)) return;
  if (reduction_.has_hook()) return bucket.accept(result_of(std::exchange(bucket.future, {})));
  bucket.work->wait();
  if (bucket.is_sparse()) bucket.accept(bucket.work->result().front());
  bucket.work.reset();
}

void OverlapEngine::hand_out_gradients() {
  const at::NoGradGuard no_grad;
  if (reduction_.runs_in_caller() && unused_.is_searched()) reduce_rest();
  for (size_t i = 0; i < buckets_.size(); ++i) {
    auto& bucket = buckets_[i];
    reduce_at_end(i);  // one after the other: readers of the gradients find them in the cache
    await_reduction(bucket);
    if (!is_skipped(bucket)) times_.finished(i);
    if (bucket.is_sparse()) continue;
    used_in_current_stream(bucket.contents());
    used_in_current_stream(bucket.gradients());  // by its readers
    std::vector<size_t> given;
    for (size_t slot = 0; slot < bucket.indices().size(); ++slot) {
      const auto index = bucket.indices()[slot];
      if (unused_.is_allowed() && unused_.is_unused_everywhere(index)) {
        bucket.forget(slot);
        continue;
      }
      bucket.give(slot, input_.parameters[index]);
      if (observer_) given.push_back(index);
    }
    if (observer_) observer_->on_bucket(given);
  }
  unused_.restore();
}

// Reports gradients that stay where autograd has put them.
void OverlapEngine::tell_observer() {
  for (const auto& bucket : buckets_) {
    std::vector<size_t> given;
    std::copy_if(bucket.indices().begin(), bucket.indices().end(), std::back_inserter(given),
                 [this](size_t index) { return !unused_.is_allowed() || !unused_.is_unused_everywhere(index); });
    observer_->on_bucket(given);
  }
}

// ---- the other ranks' step, on a rank without data: the same operations in the same order

void OverlapEngine::shadow_step() {
  unused_.forget_uses();
  const bool is_first = graph_.share();
  if (is_first) shadow_use_counts();
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const auto& bucket = buckets_[i];
    if (bucket.has_in_place()) {
      reduction_.reduce_parts(bucket.zero_parts(input_.parameters), mode())->wait();
      continue;
    }
    const auto zeros = zeros_of_bucket(input_.parameters, bucket.indices(),
                                       input_.infos[bucket.indices().front()].is_sparse, input_.gradient_dtype);
    if (reduction_.has_hook()) {
      result_of(call_hook(i, zeros));
    } else if (reduction_.needs_buckets()) {
      reduction_.all_reduce(zeros, mode())->wait();
    }
  }
  if (unused_.is_searched()) shadow_use_counts();
  wait_for_all(futures_);
  if (!is_first && order_.is_empty()) order_.note_any_order();
}

void OverlapEngine::shadow_use_counts() {
  reduce_use_counts();
  unused_.wait_for_counts();
}

std::unique_ptr<GradientEngine> make_overlap_engine(EngineInput input) {
  return std::make_unique<OverlapEngine>(std::move(input));
}

}  // namespace cohort::ddp
