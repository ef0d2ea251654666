// The engine that overlaps reduction with backward. One step:
//
//   prepare_forward   checks that the step before finished; once, rebuilds the buckets in ready order
//   prepare           expects a gradient per parameter; finds unused ones if asked to
//   on_gradient       puts each finished gradient into its bucket; full buckets are launched strictly in order
//   finish            after the last bucket: waits for the reductions and hands the results out
//
// [Note: unused parameters] A parameter unused on this rank contributes its present gradient, or zeros. Which parameters
// every rank left unused is known from the reduced use counts; those keep the gradient they had, bit for bit.
//
// [Note: last bucket] When the last bucket is full, nothing is left to overlap its reduction with. On a backend that runs
// synchronous operations in the calling thread ("shm"), finish() reduces it that way, which wakes no other thread.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <mutex>

#include "cohort/base/log.h"
#include "cohort/base/purpose.h"
#include "cohort/comm/collectives/shm_empty.h"
#include "cohort/comm/group/group_backend.h"
#include "cohort/parallel/ddp/agree_on_buckets.h"
#include "cohort/parallel/ddp/bucket.h"
#include "cohort/parallel/ddp/engine.h"
#include "cohort/parallel/ddp/reducer_errors.h"
#include "cohort/parallel/ddp/unused.h"
#include "cohort/parallel/module/gradient_hooks.h"

namespace cohort::ddp {
namespace {

// Smaller buckets are reduced in one round through the staging area, which is as fast.
constexpr int64_t kLeastSharedBytes = 16 << 10;

// Where a parameter's gradient lives.
struct Place {
  size_t bucket = 0;
  size_t slot = 0;
};

// The gradient of an unused parameter, to be put back if no rank used it.
struct SavedGradient {
  size_t index;
  at::Tensor gradient;
  at::Tensor values;
};

bool runs_in_caller(const ReducerOptions& options, const std::vector<at::Tensor>& parameters) {
  return comm::capability_of(options.process_group, parameters.front().device().type()).runs_in_caller;
}

class OverlapEngine final : public GradientEngine {
 public:
  explicit OverlapEngine(EngineInput input);

  void prepare_forward() override;
  void prepare(const std::vector<at::Tensor>& outputs) override;
  void finalize() override;
  BucketPlan buckets() const override { return plan_; }
  bool has_rebuilt_buckets() const override { return has_rebuilt_; }

 private:
  bool searches_unused() const { return options_.find_unused_parameters && !options_.static_graph; }
  bool counts_uses() const { return options_.find_unused_parameters || options_.static_graph; }
  bool is_first_static_step() const { return options_.static_graph && num_steps_ == 1; }
  bool should_rebuild() const { return !has_rebuilt_ && !searches_unused(); }

  void install_buckets(BucketPlan plan);
  at::Tensor make_contents(const std::vector<size_t>& indices) const;
  void check_prior_step_finished() const;
  [[noreturn]] void throw_unfinished(const char* what) const;
  ExtraGradient extra_gradient(size_t index) const;
  base::CalledFor called_for(base::Purpose of_module, base::Purpose of_reducer) const;
  void on_gradient(size_t index);
  void mark_found_unused();
  void mark_ready(size_t index, bool is_used);
  void save_gradient(size_t index);
  void launch_full_buckets();
  bool reduces_at_end(size_t bucket) const { return runs_in_caller_ && bucket + 1 == buckets_.size(); }
  void all_reduce(const at::Tensor& tensor, c10::intrusive_ptr<c10d::Work>& work);
  void reduce_rest();
  void queue_finish();
  void finish();
  void finish_first_static_step();
  void reduce_use_counts();
  bool is_unused_everywhere(size_t index);
  void hand_out_gradients();

  std::vector<at::Tensor> parameters_;
  ReducerOptions options_;
  Reader reader_;
  BucketCapacity capacity_;
  std::vector<ParameterInfo> infos_;
  int world_size_;
  bool runs_in_caller_;
  std::optional<UnusedSearch> search_;

  BucketPlan plan_;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;
  bool has_rebuilt_ = false;

  std::mutex mutex_;  // autograd has one thread per device
  bool is_expecting_ = false;
  bool is_unfinished_ = false;
  std::string failure_;
  int64_t num_steps_ = 0;
  size_t next_bucket_ = 0;
  std::vector<char> is_ready_;
  std::vector<size_t> ready_order_;
  std::vector<size_t> unused_;
  bool has_marked_unused_ = false;
  std::vector<int> uses_left_;  // static graph: gradients per parameter still to come in this step
  std::vector<int> uses_;       // static graph: gradients per parameter in the first step
  std::vector<SavedGradient> saved_;
  std::vector<char> is_used_here_;
  at::Tensor use_counts_;    // int32, reduced over ranks
  std::vector<int> counts_;  // use_counts_ once reduced
  bool has_counts_ = false;
  c10::intrusive_ptr<c10d::Work> use_counts_work_;

  std::vector<parallel::GradientHook> hooks_;  // last: removed first
};

OverlapEngine::OverlapEngine(EngineInput input)
    : parameters_(std::move(input.parameters)),
      options_(std::move(input.options)),
      reader_(input.reader),
      capacity_(input.capacity),
      infos_(std::move(input.infos)),
      world_size_(options_.process_group->getSize()),
      runs_in_caller_(runs_in_caller(options_, parameters_)) {
  const auto count = parameters_.size();
  if (searches_unused()) search_.emplace(parameters_);
  is_ready_.resize(count);
  is_used_here_.resize(count);
  uses_.resize(count);
  install_buckets(std::move(input.first_plan));
  for (size_t i = 0; i < count; ++i) {
    hooks_.push_back(parallel::add_gradient_hook(parameters_[i], [this, i](const at::Tensor&) { on_gradient(i); }));
  }
}

void OverlapEngine::install_buckets(BucketPlan plan) {
  plan_ = std::move(plan);
  std::vector<Bucket> old = std::move(buckets_);  // gradients may still live there
  buckets_.clear();
  places_.resize(parameters_.size());
  for (const auto& indices : plan_) {
    const bool is_sparse = infos_[indices.front()].is_sparse;
    TORCH_CHECK(!is_sparse || indices.size() == 1,
                "Buckets with more than one variable cannot include variables that expect a sparse gradient.");
    // A single rank has nothing to reduce: gradients stay where autograd put them.
    const bool is_dense = !is_sparse && world_size_ > 1;
    auto& bucket = buckets_.emplace_back(indices, parameters_, is_dense ? make_contents(indices) : at::Tensor());
    for (size_t slot = 0; slot < indices.size(); ++slot) {
      places_[indices[slot]] = {buckets_.size() - 1, slot};
      bucket.adopt(slot, parameters_[indices[slot]]);
    }
  }
}

// In memory that all ranks of the host map, where the group has it: that saves the copies to and from the staging area.
at::Tensor OverlapEngine::make_contents(const std::vector<size_t>& indices) const {
  const auto options = parameters_[indices.front()].options().requires_grad(false);
  int64_t num_elements = 0;
  for (const size_t index : indices) num_elements += parameters_[index].numel();
  const auto num_bytes = num_elements * static_cast<int64_t>(options.dtype().itemsize());
  if (num_bytes < kLeastSharedBytes || !options.device().is_cpu() || !comm::has_shared_memory(options_.process_group)) {
    return at::empty({num_elements}, options);
  }
  return comm::shm_empty({num_elements}, options, options_.process_group);
}

void OverlapEngine::check_prior_step_finished() const {
  TORCH_CHECK(failure_.empty(), failed_before_message(reader_, failure_));
  if (is_unfinished_) throw_unfinished("prepare() cannot begin a step, because the one before is not finished");
}

void OverlapEngine::throw_unfinished(const char* what) const {
  UnfinishedReduction state{.reader = reader_,
                            .what = what,
                            .rank = options_.process_group->getRank(),
                            .world_size = world_size_,
                            .find_unused_parameters = options_.find_unused_parameters,
                            .static_graph = options_.static_graph,
                            .indices = {},
                            .names = options_.parameter_names,
                            .num_parameters = parameters_.size()};
  for (size_t i = 0; i < is_ready_.size(); ++i) {
    if (!is_ready_[i]) state.indices.push_back(i);
  }
  TORCH_CHECK(false, unfinished_reduction_message(state));
}

ExtraGradient OverlapEngine::extra_gradient(size_t index) const {
  return {reader_, options_.process_group->getRank(), world_size_, index, options_.parameter_names, searches_unused()};
}

base::CalledFor OverlapEngine::called_for(base::Purpose of_module, base::Purpose of_reducer) const {
  return base::CalledFor(reader_ == Reader::kModule ? of_module : of_reducer);
}

void OverlapEngine::prepare_forward() {
  check_prior_step_finished();
  if (!should_rebuild() || ready_order_.size() != parameters_.size()) return;
  const auto purpose = called_for(base::Purpose::kDdpBuckets, base::Purpose::kReducerBuckets);
  auto plan = plan_buckets_in_order(infos_, {capacity_.first_bytes, capacity_.bytes}, ready_order_);
  if (world_size_ > 1) plan = agree_on_buckets(options_.process_group, plan, parameters_.front().device());
  has_rebuilt_ = true;
  ready_order_.clear();
  install_buckets(std::move(plan));
}

void OverlapEngine::prepare(const std::vector<at::Tensor>& outputs) {
  check_prior_step_finished();
  ++num_steps_;
  is_expecting_ = true;
  next_bucket_ = 0;
  std::fill(is_ready_.begin(), is_ready_.end(), 0);
  for (auto& bucket : buckets_) bucket.num_pending = bucket.indices().size();
  has_marked_unused_ = false;
  if (should_rebuild()) ready_order_.clear();
  if (options_.static_graph) uses_left_ = uses_;
  if (!searches_unused()) return;
  has_counts_ = false;
  unused_.clear();
  if (outputs.empty()) return;
  unused_ = search_->unused(outputs);
  if (unused_.empty()) {
    base::warn_once(none_unused_message(reader_));
  }
}

void OverlapEngine::on_gradient(size_t index) {
  const std::lock_guard lock(mutex_);
  if (counts_uses()) is_used_here_[index] = 1;  // under no_sync() too: its gradient waits for the next reduction
  if (!is_expecting_) return;
  if (is_first_static_step()) {
    if (!is_unfinished_) {
      torch::autograd::Engine::get_default_engine().queue_callback([this] { finish_first_static_step(); });
    }
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
  if (world_size_ > 1) {
    if (!is_used) save_gradient(index);
    bucket.take(place.slot, parameters_[index], world_size_,
                options_.gradient_as_bucket_view ? Averaging::kDivideInPlace : Averaging::kMultiply);
  }
  if (--bucket.num_pending == 0) launch_full_buckets();
}

void OverlapEngine::save_gradient(size_t index) {
  const auto& gradient = parameters_[index].grad();
  if (gradient.defined() && !infos_[index].is_sparse) saved_.push_back({index, gradient, gradient.detach().clone()});
}

void OverlapEngine::launch_full_buckets() {
  for (; next_bucket_ < buckets_.size() && buckets_[next_bucket_].num_pending == 0; ++next_bucket_) {
    if (world_size_ > 1 && !reduces_at_end(next_bucket_)) {
      all_reduce(buckets_[next_bucket_].contents(), buckets_[next_bucket_].work);
    }
  }
  if (next_bucket_ == buckets_.size() && searches_unused() && !runs_in_caller_) reduce_use_counts();
}

// See [Note: last bucket].
void OverlapEngine::reduce_rest() {
  all_reduce(buckets_.back().contents(), buckets_.back().work);
  if (searches_unused()) reduce_use_counts();
}

void OverlapEngine::all_reduce(const at::Tensor& tensor, c10::intrusive_ptr<c10d::Work>& work) {
  std::vector<at::Tensor> tensors{tensor};
  const auto purpose = called_for(base::Purpose::kDdpGradients, base::Purpose::kReducerGradients);
  c10d::AllreduceOptions options;
  options.asyncOp = is_expecting_;
  work = options_.process_group->getBackend(tensor.device().type())->allreduce(tensors, options);
}

void OverlapEngine::queue_finish() {
  torch::autograd::Engine::get_default_engine().queue_callback([this] { finish(); });
}

void OverlapEngine::finalize() {
  if (!is_expecting_) return;
  TORCH_CHECK(failure_.empty(), failure_);
  if (is_first_static_step()) return finish_first_static_step();
  if (!searches_unused() && !options_.static_graph) throw_unfinished("finalize() cannot end the step");
  mark_found_unused();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!is_ready_[i]) mark_ready(i, /*is_used=*/false);
  }
  finish();
}

void OverlapEngine::finish_first_static_step() {
  if (!is_expecting_) return;
  unused_.clear();
  reduce_use_counts();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (uses_[i] == 0) unused_.push_back(i);
    mark_ready(i, uses_[i] > 0);
  }
  finish();
}

void OverlapEngine::reduce_use_counts() {
  if (world_size_ == 1) return;
  std::vector<int> used(is_used_here_.begin(), is_used_here_.end());
  use_counts_ = at::tensor(used, at::kInt).to(parameters_.front().device());
  all_reduce(use_counts_, use_counts_work_);
}

bool OverlapEngine::is_unused_everywhere(size_t index) {
  if (is_used_here_[index]) return false;
  if (world_size_ == 1) return true;
  if (!has_counts_) {
    use_counts_work_->wait();
    const auto on_cpu = use_counts_.to(at::kCPU);
    counts_.assign(on_cpu.const_data_ptr<int>(), on_cpu.const_data_ptr<int>() + on_cpu.numel());
    has_counts_ = true;
  }
  return counts_[index] == 0;
}

void OverlapEngine::finish() {
  is_expecting_ = false;
  if (should_rebuild() && options_.static_graph && !is_first_static_step()) {
    ready_order_.insert(ready_order_.end(), unused_.begin(), unused_.end());
  }
  try {
    if (world_size_ > 1) hand_out_gradients();
  } catch (const std::exception& error) {
    const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
    failure_ = c10_error ? c10_error->what_without_backtrace() : error.what();
    throw;
  }
  saved_.clear();
  if (searches_unused()) std::fill(is_used_here_.begin(), is_used_here_.end(), 0);
  is_unfinished_ = false;
}

void OverlapEngine::hand_out_gradients() {
  const at::NoGradGuard no_grad;
  if (runs_in_caller_) reduce_rest();
  for (auto& bucket : buckets_) {
    bucket.work->wait();
    if (bucket.is_sparse()) {
      auto gradient = bucket.contents();
      gradient.copy_(bucket.work->result().front());
      bucket.work.reset();
      continue;
    }
    bucket.work.reset();
    for (size_t slot = 0; slot < bucket.indices().size(); ++slot) {
      const auto index = bucket.indices()[slot];
      if (counts_uses() && is_unused_everywhere(index)) continue;
      bucket.give(slot, parameters_[index]);
    }
  }
  for (auto& saved : saved_) {
    if (!is_unused_everywhere(saved.index)) continue;
    saved.gradient.copy_(saved.values);
    parameters_[saved.index].mutable_grad() = saved.gradient;
  }
  if (use_counts_work_) {
    use_counts_work_->wait();
    use_counts_work_.reset();
  }
}

}  // namespace

std::unique_ptr<GradientEngine> make_overlap_engine(EngineInput input) {
  return std::make_unique<OverlapEngine>(std::move(input));
}

}  // namespace cohort::ddp
