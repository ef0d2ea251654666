/// The engine that overlaps reduction with backward. One step:
///
///   prepare_forward   checks that the step before finished; once, rebuilds the buckets in ready order
///   prepare           expects a gradient per parameter; finds unused ones if asked to
///   on_gradient       puts each finished gradient into its bucket; full buckets are launched strictly in order
///   finish            after the last bucket: waits for the reductions and hands the results out
///
/// [Note: unused parameters] A parameter unused on this rank contributes its present gradient, or zeros. Which parameters
/// every rank left unused is known from the reduced use counts; those keep the gradient they had, bit for bit.
///
/// [Note: last bucket] When the last bucket is full, nothing is left to overlap its reduction with. On a backend that runs
/// synchronous operations in the calling thread ("shm"), finish() reduces it that way, which wakes no other thread. With one core
/// per rank there is nothing to overlap any bucket with: finish() reduces them all.
///
/// [Note: streams] On accelerators a hook runs in the stream of its parameter's forward function, so that a bucket may be filled
/// in several streams, and launched by a hook in yet another: it is reduced in the stream that filled it last, after the others.
/// What no hook brings, the gradients of unused parameters, is saved and zeroed in the caller's streams of prepare(): the
/// optimizer's last step may still be pending there, and whichever hook comes first runs elsewhere.
///
/// [Note: in place] Large gradients stay where autograd has put them on hosts that are one memory, see in_place.h; a bucket is
/// then reduced in several parts, by one operation.
///
/// [Note: communication hook] It is foreign code: it runs without the lock, in one thread at a time, so that it is given the
/// buckets in order. A thread that fills a bucket meanwhile leaves it to the one that is in the hook.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/comm/call/purpose.h"
#include "cohort/parallel/ddp/bucket.h"
#include "cohort/parallel/ddp/device_streams.h"
#include "cohort/parallel/ddp/engine.h"
#include "cohort/parallel/ddp/saved_gradients.h"
#include "cohort/parallel/ddp/unused.h"
#include "cohort/parallel/ddp/use_counts.h"
#include "cohort/parallel/module/gradient_hooks.h"

namespace cohort::ddp {

class OverlapEngine final : public GradientEngine {
 public:
  explicit OverlapEngine(EngineInput input);
  ~OverlapEngine() override;

  void prepare_forward() override;
  void prepare(const std::vector<at::Tensor>& outputs) override;
  bool is_expecting() const override { return is_expecting_; }
  bool needs_outputs() const override { return searches_unused() || is_first_static_step(); }
  void finalize() override;
  BucketPlan buckets() const override { return plan_; }
  BucketPlan first_buckets() const override { return first_plan_; }
  bool has_rebuilt_buckets() const override { return has_rebuilt_; }
  void register_comm_hook(CommHook hook) override;
  void divide_by_live_ranks(const c10::intrusive_ptr<c10d::Work>&, int num_live) override { next_divisor_ = num_live; }
  void shadow_step() override;
  void install_futures(const std::vector<CommHookFuture>& futures) override {
    futures_.insert(futures_.end(), futures.begin(), futures.end());
  }
  void reset() override;
  void update_process_group(const Group& group) override;
  void remove_hooks() override {
    hooks_.clear();
    is_removed_ = true;
  }
  void observe(ReductionObserver& observer) override { observer_ = &observer; }
  StepTimes* times() override { return &times_; }
  std::vector<size_t> unused() const override { return unused_; }
  std::string failure() const override { return failure_; }

 private:
  // Where a parameter's gradient lives.
  struct Place {
    size_t bucket = 0;
    size_t slot = 0;
  };

  // Gradients that buckets have replaced. Their destructors are foreign code.
  using Replaced = c10::SmallVector<at::Tensor, 8>;
  void let_go(at::Tensor gradient) {
    if (gradient.defined()) replaced_.push_back(std::move(gradient));
  }

  bool searches_unused() const { return options_.find_unused_parameters && !options_.static_graph; }
  bool counts_uses() const { return options_.find_unused_parameters || options_.static_graph; }
  bool is_first_static_step() const { return options_.static_graph && !has_learned_graph_; }
  // A single rank has nothing to reduce: gradients stay where autograd put them. But hooks see the buckets of one rank too.
  bool fills_buckets() const { return world_size_ > 1 || hook_; }
  bool takes_all(const Bucket& bucket) const {
    return options_.batched_grad_copy && fills_buckets() && !bucket.is_sparse();
  }
  bool is_skipped(const Bucket& bucket) const;
  bool should_rebuild() const { return !has_rebuilt_ && !searches_unused(); }

  void install_buckets(BucketPlan plan);
  Bucket make_bucket(const std::vector<size_t>& indices, const std::vector<char>& in_place) const;
  void check_prior_step_finished() const;
  ExtraGradient extra_gradient(size_t index) const;
  comm::CalledFor called_for(const comm::Purpose& of_module, const comm::Purpose& of_reducer) const;
  void on_gradient(size_t index);
  void mark_found_unused();
  void mark_ready(size_t index, bool is_used);
  Averaging averaging() const;
  void launch_full_buckets();
  void run_hook(std::unique_lock<std::mutex>& lock);
  CommHookFuture call_hook(size_t bucket, const at::Tensor& buffer);
  void note_failure(const std::exception& error);
  void abandon_gradients();
  bool reduces_at_end(size_t bucket) const {
    return runs_in_caller_ && (bucket + 1 == buckets_.size() || !has_core_to_overlap_);
  }
  c10::intrusive_ptr<c10d::Work> all_reduce(const at::Tensor& tensor);
  c10::intrusive_ptr<c10d::Work> reduce_parts(std::vector<at::Tensor> parts);
  c10::intrusive_ptr<c10d::Work> reduce(const Bucket& bucket);
  void reduce_at_end(size_t bucket);
  void reduce_rest();
  void await_reduction(Bucket& bucket);
  void watch(const std::vector<at::Tensor>& outputs);
  void queue_first_finish();
  void queue_finish();
  void finish_buckets();
  void finish();
  void finish_first_static_step();
  void note_any_order();
  void reduce_use_counts();
  void shadow_use_counts();
  bool is_unused_everywhere(size_t index);
  void hand_out_gradients();

  std::vector<at::Tensor> parameters_;
  ReducerOptions options_;
  Reader reader_;
  BucketCapacity capacity_;
  std::optional<at::ScalarType> gradient_dtype_;
  std::vector<ParameterInfo> infos_;
  int world_size_;
  int divisor_;           // of this step's gradients: the ranks that have data
  int next_divisor_ = 0;  // 0: all ranks
  bool runs_in_caller_;
  bool has_core_to_overlap_;
  std::optional<UnusedSearch> search_;
  CommHook hook_;
  ReductionObserver* observer_ = nullptr;
  std::vector<CommHookFuture> futures_;  // to be waited for at the end of backward
  bool is_in_hook_ = false;

  BucketPlan first_plan_;
  BucketPlan plan_;
  std::vector<Bucket> buckets_;
  std::vector<FillingStreams> filling_;  // by bucket
  CallerStreams caller_streams_;
  std::vector<Place> places_;
  bool has_rebuilt_ = false;

  std::mutex mutex_;  // autograd has one thread per device
  bool is_removed_ = false;
  bool is_expecting_ = false;
  bool is_unfinished_ = false;
  bool has_queued_first_finish_ = false;
  std::string failure_;
  // Static graph: this rank knows its own, and the ranks know of each other's. A rank without data learns its own later.
  bool has_learned_graph_ = false;
  bool has_shared_graph_ = false;
  size_t next_bucket_ = 0;
  std::vector<char> is_ready_;
  std::vector<size_t> ready_order_;
  std::vector<size_t> unused_;
  bool has_marked_unused_ = false;
  std::vector<int> uses_left_;  // static graph: gradients per parameter still to come in this step
  std::vector<int> uses_;       // static graph: gradients per parameter in the step that is learned from
  SavedGradients saved_;
  std::vector<char> is_used_here_;
  UseCounts use_counts_;
  Replaced replaced_;
  StepTimes times_;

  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::vector<parallel::GradientHook> hooks_;  // last: removed first
};

}  // namespace cohort::ddp
