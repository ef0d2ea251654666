// How buckets are made, filled and launched; overlap_finish.cpp has the end of a step.
#include "cohort/parallel/ddp/overlap_engine.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "cohort/base/env.h"
#include "cohort/base/log.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/group_backend.h"
#include "cohort/comm/group/job_warning.h"
#include "cohort/parallel/ddp/agree_on_buckets.h"
#include "cohort/parallel/ddp/bucket_memory.h"
#include "cohort/parallel/ddp/hook_result.h"
#include "cohort/parallel/ddp/in_place.h"
#include "cohort/parallel/ddp/purpose.h"
#include "cohort/parallel/ddp/reducer_errors.h"
#include "cohort/parallel/ddp/unfinished_step.h"

namespace cohort::ddp {
namespace {

// Besides the one on which backward runs. By the machine's cores, so that all ranks decide alike: they must, as it is the order
// of their operations.
bool has_core_to_overlap(const Group& group) {
  const auto wanted = base::env_bool("COHORT_DDP_OVERLAP");
  TORCH_CHECK_VALUE(wanted.ok(), wanted.error().describe());
  if (wanted.value()) return *wanted.value();
  const auto local_world_size = base::env_int("LOCAL_WORLD_SIZE");
  const auto num_local = local_world_size.ok() ? local_world_size->value_or(1) : 1;
  return ::sysconf(_SC_NPROCESSORS_ONLN) / std::max<long long>(group->getSize(), num_local) > 1;
}

bool runs_in_caller(const ReducerOptions& options, const std::vector<at::Tensor>& parameters) {
  return comm::capability_of(options.process_group, parameters.front().device().type()).runs_in_caller;
}

}  // namespace

OverlapEngine::OverlapEngine(EngineInput input)
    : parameters_(std::move(input.parameters)),
      options_(std::move(input.options)),
      reader_(input.reader),
      capacity_(input.capacity),
      gradient_dtype_(input.gradient_dtype),
      infos_(std::move(input.infos)),
      world_size_(options_.process_group->getSize()),
      divisor_(world_size_),
      runs_in_caller_(runs_in_caller(options_, parameters_)),
      has_core_to_overlap_(has_core_to_overlap(options_.process_group)),
      caller_streams_(parameters_) {
  const auto count = parameters_.size();
  if (searches_unused()) search_.emplace(parameters_);
  is_ready_.resize(count);
  is_used_here_.resize(count);
  uses_.resize(count);
  first_plan_ = input.first_plan;
  install_buckets(std::move(input.first_plan));
  for (size_t i = 0; i < count; ++i) {
    hooks_.push_back(parallel::add_gradient_hook(parameters_[i], [this, i](const at::Tensor&) { on_gradient(i); }));
  }
}

void OverlapEngine::install_buckets(BucketPlan plan) {
  plan_ = std::move(plan);
  std::vector<Bucket> old = std::move(buckets_);  // gradients may still live there
  for (const auto& bucket : old) {
    used_in_current_stream(bucket.contents());
    used_in_current_stream(bucket.gradients());
  }
  buckets_.clear();
  times_.set_buckets(plan_.size());
  filling_.assign(plan_.size(), {});
  places_.resize(parameters_.size());
  const auto in_place = hook_ ? std::vector<char>(parameters_.size()) : find_in_place(parameters_, infos_, options_);
  for (const auto& indices : plan_) {
    auto& bucket = buckets_.emplace_back(make_bucket(indices, in_place));
    bucket.num_pending = indices.size();
    for (size_t slot = 0; slot < indices.size(); ++slot) {
      places_[indices[slot]] = {buckets_.size() - 1, slot};
      bucket.adopt(slot, parameters_[indices[slot]]);
    }
  }
}

Bucket OverlapEngine::make_bucket(const std::vector<size_t>& indices, const std::vector<char>& in_place) const {
  const bool is_sparse = infos_[indices.front()].is_sparse;
  TORCH_CHECK(!is_sparse || indices.size() == 1,
              "Buckets with more than one variable cannot include variables that expect a sparse gradient.");
  if (is_sparse || !fills_buckets()) return {indices, parameters_, at::Tensor()};
  std::vector<size_t> packed;
  std::copy_if(indices.begin(), indices.end(), std::back_inserter(packed), [&](size_t i) { return !in_place[i]; });
  if (packed.size() < indices.size()) {
    auto contents = packed.empty() ? at::empty({0}, parameters_[indices.front()].options().requires_grad(false))
                                   : make_bucket_memory(parameters_, packed, options_.process_group, gradient_dtype_);
    return {indices, parameters_, std::move(contents), {}, in_place};
  }
  auto contents = make_bucket_memory(parameters_, indices, options_.process_group, gradient_dtype_);
  if (contents.scalar_type() == infos_[indices.front()].dtype) return {indices, parameters_, std::move(contents)};
  return {indices, parameters_, contents,
          at::empty(contents.sizes(), contents.options().dtype(infos_[indices.front()].dtype))};
}

void OverlapEngine::reset() {
  is_expecting_ = false;
  is_unfinished_ = false;
  is_in_hook_ = false;
  failure_.clear();
  futures_.clear();
  has_rebuilt_ = false;
  ready_order_.clear();
  unused_.clear();
  saved_.clear();
  use_counts_ = {};
  next_divisor_ = 0;
  has_learned_graph_ = false;
  has_shared_graph_ = false;
  std::fill(is_used_here_.begin(), is_used_here_.end(), 0);
  for (auto& bucket : buckets_) {
    bucket.work.reset();
    bucket.future.reset();
  }
  abandon_gradients();
}

// Of operations that failed, or that others may still come to. See Bucket::abandon().
void OverlapEngine::abandon_gradients() {
  for (auto& bucket : buckets_) {
    const auto& indices = bucket.indices();
    for (size_t slot = 0; slot < indices.size(); ++slot) bucket.abandon(slot, parameters_[indices[slot]]);
  }
}

OverlapEngine::~OverlapEngine() {
  try {
    abandon_gradients();
  } catch (const std::exception& error) {
    base::log_warning(std::string("gradients of a step that was not finished could not be copied: ") + error.what());
  }
}

void OverlapEngine::update_process_group(const Group& group) {
  options_.process_group = group;
  world_size_ = group->getSize();
  runs_in_caller_ = runs_in_caller(options_, parameters_);
  has_core_to_overlap_ = has_core_to_overlap(group);
  install_buckets(BucketPlan(first_plan_));  // which ranks have that were lost in the middle of an agreement, too
}

void OverlapEngine::check_prior_step_finished() const {
  TORCH_CHECK(failure_.empty(), failed_before_message(reader_, failure_));
  if (!is_unfinished_) return;
  throw_unfinished(options_, reader_, "prepare() cannot begin a step, because the one before is not finished",
                   is_ready_);
}

ExtraGradient OverlapEngine::extra_gradient(size_t index) const {
  return {reader_, options_.process_group->getRank(), world_size_, index, options_.parameter_names, searches_unused()};
}

comm::CalledFor OverlapEngine::called_for(const comm::Purpose& of_module, const comm::Purpose& of_reducer) const {
  return comm::CalledFor(reader_ == Reader::kModule ? of_module : of_reducer);
}

void OverlapEngine::prepare_forward() {
  if (is_removed_) return;
  check_prior_step_finished();
  times_.begin_forward();
  if (!should_rebuild() || ready_order_.size() != parameters_.size()) return;
  const auto purpose = called_for(kBucketAgreement, kReducerBuckets);
  auto plan = plan_buckets_in_order(infos_, rebuild_limits(capacity_), ready_order_);
  if (world_size_ > 1) plan = agree_on_buckets(options_.process_group, plan, parameters_.front().device());
  has_rebuilt_ = true;
  ready_order_.clear();
  install_buckets(std::move(plan));
}

void OverlapEngine::prepare(const std::vector<at::Tensor>& outputs) {
  if (is_removed_) return;
  check_prior_step_finished();
  times_.begin_step();
  caller_streams_.remember();
  divisor_ = next_divisor_ > 0 ? std::exchange(next_divisor_, 0) : world_size_;
  is_expecting_ = true;
  next_bucket_ = 0;
  std::fill(is_ready_.begin(), is_ready_.end(), 0);
  for (auto& bucket : buckets_) bucket.num_pending = bucket.indices().size();
  has_marked_unused_ = false;
  if (should_rebuild()) ready_order_.clear();
  if (is_first_static_step()) {
    std::fill(uses_.begin(), uses_.end(), 0);
    has_queued_first_finish_ = false;
    watch(outputs);
  }
  if (options_.static_graph) uses_left_ = uses_;
  if (!searches_unused()) return;
  use_counts_.forget();
  unused_.clear();
  if (outputs.empty()) return;
  if (gradient_dtype_) search_.emplace(parameters_);  // another dtype is another accumulator
  unused_ = search_->unused(outputs);
  if (unused_.empty()) {
    comm::warn_once_per_job(none_unused_message(reader_));
  }
}

void OverlapEngine::on_gradient(size_t index) {
  if (at::GradMode::is_enabled()) comm::warn_once_per_job(create_graph_message());
  Replaced replaced;  // destroyed after the lock has gone
  std::unique_lock lock(mutex_);
  if (counts_uses()) is_used_here_[index] = 1;  // under no_sync() too: its gradient waits for the next reduction
  if (!is_expecting_) return;
  times_.gradient(index);
  if (is_first_static_step()) {
    queue_first_finish();
    is_unfinished_ = true;
    ++uses_[index];
    return;
  }
  mark_found_unused();
  if (options_.static_graph) {
    TORCH_CHECK(uses_left_[index] > 0, graph_changed_message(extra_gradient(index)));
    if (--uses_left_[index] > 0) return;
  }
  if (should_rebuild()) ready_order_.push_back(index);
  mark_ready(index, /*is_used=*/true);
  replaced.swap(replaced_);
  if (hook_) run_hook(lock);
  if (next_bucket_ == buckets_.size()) queue_finish();
}

void OverlapEngine::mark_found_unused() {
  if (has_marked_unused_) return;
  has_marked_unused_ = true;
  for (const size_t index : unused_) mark_ready(index, /*is_used=*/false);
}

void OverlapEngine::mark_ready(size_t index, bool is_used) {
  TORCH_CHECK(!is_ready_[index], ready_twice_message(extra_gradient(index)));
  is_ready_[index] = 1;
  is_unfinished_ = true;
  const auto place = places_[index];
  auto& bucket = buckets_[place.bucket];
  if (fills_buckets()) {
    const auto& parameter = parameters_[index];
    // See [Note: streams].
    const c10::OptionalStreamGuard guard(is_used ? std::nullopt : caller_streams_.on(parameter.device()));
    used_in_current_stream(parameter.grad());  // which the bucket replaces
    if (!is_used && !infos_[index].is_sparse) saved_.add(index, parameter.grad(), infos_[index].dtype);
    if (!takes_all(bucket)) let_go(bucket.take(place.slot, parameter, divisor_, averaging()));
    filling_[place.bucket].add_current(parameter.device(), bucket.contents());
  }
  if (--bucket.num_pending > 0) return;
  if (takes_all(bucket)) {
    const c10::OptionalStreamGuard guard(filling_[place.bucket].join());
    for (auto& gradient : bucket.take_all(parameters_, divisor_, averaging())) let_go(std::move(gradient));
    filling_[place.bucket].add_current(parameters_[index].device(), bucket.contents());
  }
  times_.ready(place.bucket);
  launch_full_buckets();
}

Averaging OverlapEngine::averaging() const {
  if (hook_) return Averaging::kNone;
  return options_.gradient_as_bucket_view ? Averaging::kDivideInPlace : Averaging::kMultiply;
}

void OverlapEngine::register_comm_hook(CommHook hook) {
  TORCH_CHECK(
      !is_unfinished_,
      "register_comm_hook cannot be called while backward runs, or after one that is not finished: buckets have "
      "gradients already. Register the communication hook before backward().");
  hook_ = std::move(hook);
  const bool has_in_place =
      std::any_of(buckets_.begin(), buckets_.end(), [](const Bucket& bucket) { return bucket.has_in_place(); });
  if (world_size_ == 1 || has_in_place) install_buckets(BucketPlan(plan_));
}

// See [Note: communication hook].
void OverlapEngine::run_hook(std::unique_lock<std::mutex>& lock) {
  if (is_in_hook_) return;
  is_in_hook_ = true;
  for (; next_bucket_ < buckets_.size() && buckets_[next_bucket_].num_pending == 0; ++next_bucket_) {
    const auto bucket = next_bucket_;
    const c10::OptionalStreamGuard guard(filling_[bucket].join());  // see [Note: streams]
    if (is_skipped(buckets_[bucket])) continue;
    times_.launched(bucket);
    lock.unlock();
    auto future = call_hook(bucket, buckets_[bucket].contents());
    lock.lock();
    buckets_[bucket].future = std::move(future);
  }
  is_in_hook_ = false;
  if (next_bucket_ == buckets_.size() && searches_unused() && !runs_in_caller_) reduce_use_counts();
}

CommHookFuture OverlapEngine::call_hook(size_t bucket, const at::Tensor& buffer) try {
  const auto& indices = buckets_[bucket].indices();
  std::vector<at::Tensor> parameters;
  for (const size_t index : indices) parameters.push_back(parameters_[index]);
  GradBucket seen(bucket, buckets_.size(), buffer, std::move(parameters));
  const auto purpose = called_for(kGradientExchange, kReducerGradients);
  return run_comm_hook(hook_, seen);
} catch (const std::exception& error) {
  const std::lock_guard lock(mutex_);
  is_in_hook_ = false;
  note_failure(error);
  throw;
}

void OverlapEngine::note_failure(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  failure_ = c10_error ? c10_error->what_without_backtrace() : error.what();
}

void OverlapEngine::launch_full_buckets() {
  if (hook_) return;  // run_hook() does
  for (; next_bucket_ < buckets_.size() && buckets_[next_bucket_].num_pending == 0; ++next_bucket_) {
    const c10::OptionalStreamGuard guard(filling_[next_bucket_].join());
    auto& bucket = buckets_[next_bucket_];
    if (world_size_ == 1 || reduces_at_end(next_bucket_) || is_skipped(bucket)) continue;
    times_.launched(next_bucket_);
    bucket.work = reduce(bucket);
  }
  if (next_bucket_ == buckets_.size() && searches_unused() && !runs_in_caller_) reduce_use_counts();
}

// See [Note: last bucket].
void OverlapEngine::reduce_at_end(size_t bucket) {
  if (hook_ || !reduces_at_end(bucket) || buckets_[bucket].work || is_skipped(buckets_[bucket])) return;
  times_.launched(bucket);
  buckets_[bucket].work = reduce(buckets_[bucket]);
  times_.finished(bucket);  // this thread has reduced it
}

// What tells which gradients are nobody's comes after all buckets.
void OverlapEngine::reduce_rest() {
  for (size_t i = 0; i < buckets_.size(); ++i) reduce_at_end(i);
  reduce_use_counts();
}

c10::intrusive_ptr<c10d::Work> OverlapEngine::all_reduce(const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor};
  const auto purpose = called_for(kGradientExchange, kReducerGradients);
  c10d::AllreduceOptions options;
  options.asyncOp = is_expecting_;
  return options_.process_group->getBackend(tensor.device().type())->allreduce(tensors, options);
}

// See [Note: in place].
c10::intrusive_ptr<c10d::Work> OverlapEngine::reduce_parts(std::vector<at::Tensor> parts) {
  const auto purpose = called_for(kGradientExchange, kReducerGradients);
  const auto backend = options_.process_group->getBackend(c10::DeviceType::CPU);
  c10d::AllreduceCoalescedOptions options;
  options.reduceOp = premul_sum(1.0 / divisor_);
  options.asyncOp = is_expecting_;
  return parts.size() == 1 ? backend->allreduce(parts, options) : backend->allreduce_coalesced(parts, options);
}

c10::intrusive_ptr<c10d::Work> OverlapEngine::reduce(const Bucket& bucket) {
  return bucket.has_in_place() ? reduce_parts(bucket.parts()) : all_reduce(bucket.contents());
}

std::unique_ptr<GradientEngine> make_overlap_engine(EngineInput input) {
  return std::make_unique<OverlapEngine>(std::move(input));
}

}  // namespace cohort::ddp
