/// The engine that overlaps reduction with backward. One step:
///
///   prepare_forward   checks that the step before finished; once, rebuilds the buckets in ready order
///   prepare           expects a gradient per parameter; finds unused ones if asked to
///   on_gradient       puts each finished gradient into its bucket; full buckets are launched strictly in order
///   finish            after the last bucket: waits for the reductions and hands the results out
///
/// The rules are objects of their own: step_state.h (the phase of a step), bucket_set.h (where gradients live), ready_order.h
/// (when buckets are rebuilt), bucket_reduction.h (with which operation, and when), unused_parameters.h, static_graph.h.
///
/// [Note: unused parameters] A parameter unused on this rank contributes its present gradient, or zeros. The reduced use counts
/// tell which parameters no rank has used; those keep their gradient, bit for bit.
///
/// [Note: streams] On accelerators a hook runs in the stream of its parameter's forward function. So a bucket may be filled in
/// several streams, and launched by a hook in yet another: it is reduced in the stream that filled it last, after the others. The
/// gradients of unused parameters, which no hook brings, are saved and zeroed in the caller's streams of prepare(): the
/// optimizer's last step may still be pending there, and the first hook runs elsewhere.
///
/// [Note: in place] On hosts whose ranks share memory large gradients stay where autograd has put them, see in_place.h; one
/// operation then reduces the several parts of a bucket.
///
/// [Note: communication hook] A hook is foreign code: it runs without the lock, in one thread at a time, so that it gets the
/// buckets in order. A thread that fills a bucket meanwhile leaves it to the thread that is in the hook.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cohort/parallel/ddp/buckets/bucket_set.h"
#include "cohort/parallel/ddp/buckets/device_streams.h"
#include "cohort/parallel/ddp/buckets/ready_order.h"
#include "cohort/parallel/ddp/buckets/static_graph.h"
#include "cohort/parallel/ddp/buckets/step_state.h"
#include "cohort/parallel/ddp/buckets/unused_parameters.h"
#include "cohort/parallel/ddp/engines/bucket_reduction.h"
#include "cohort/parallel/ddp/engines/engine.h"
#include "cohort/parallel/module/gradient_hooks.h"

namespace cohort::ddp {

class OverlapEngine final : public GradientEngine {
 public:
  explicit OverlapEngine(EngineInput input);
  ~OverlapEngine() override;

  void prepare_forward() override;
  void prepare(const std::vector<at::Tensor>& outputs) override;
  bool is_expecting() const override { return step_.is_expecting(); }
  bool needs_outputs() const override { return unused_.is_searched() || graph_.is_learning(); }
  void finalize() override;
  BucketPlan buckets() const override { return buckets_.plan(); }
  BucketPlan first_buckets() const override { return input_.first_plan; }
  bool has_rebuilt_buckets() const override { return order_.has_rebuilt(); }
  void register_comm_hook(CommHook hook) override;
  void divide_by_live_ranks(const c10::intrusive_ptr<c10d::Work>&, int num_live) override {
    reduction_.divide_next_by(num_live);
  }
  void shadow_step() override;
  void install_futures(const std::vector<CommHookFuture>& futures) override {
    futures_.insert(futures_.end(), futures.begin(), futures.end());
  }
  void reset() override;
  void update_process_group(const Group& group) override;
  void remove_hooks() override { hooks_.clear(); }
  void observe(ReductionObserver& observer) override { observer_ = &observer; }
  StepTimes* times() override { return &times_; }
  std::vector<size_t> unused() const override { return unused_.here(); }
  std::string failure() const override { return step_.failure(); }

 private:
  // Gradients that buckets have replaced. Their destructors are foreign code.
  using Replaced = c10::SmallVector<at::Tensor, 8>;
  void let_go(at::Tensor gradient) {
    if (gradient.defined()) replaced_.push_back(std::move(gradient));
  }

  bool is_removed() const { return hooks_.empty(); }
  ReduceMode mode() const { return step_.is_expecting() ? ReduceMode::kAsync : ReduceMode::kSync; }
  bool is_skipped(const Bucket& bucket) const { return unused_.may_skip(bucket.indices()); }

  void install_buckets(const BucketPlan& plan);
  void check_prior_step_finished() const;
  ExtraGradient extra_gradient(size_t index) const;
  void watch(const std::vector<at::Tensor>& outputs);
  void on_gradient(size_t index);
  void mark_found_unused();
  void mark_ready(size_t index, bool is_used);
  void fill_slot(size_t index, BucketSet::Place place, bool is_used);
  void fill_all_slots(Bucket& bucket);
  void launch_full_buckets();
  void run_hook(std::unique_lock<std::mutex>& lock);
  CommHookFuture call_hook(size_t bucket, const at::Tensor& buffer);
  void queue_first_finish();
  void queue_finish();
  void finish_first_static_step();
  void finish_buckets();
  void finish();
  void reduce_use_counts();
  void shadow_use_counts();
  void reduce_at_end(size_t bucket);
  void reduce_rest();
  void await_reduction(Bucket& bucket);
  void hand_out_gradients();
  void tell_observer();

  EngineInput input_;
  BucketSet buckets_;
  ReadyOrder order_;
  BucketReduction reduction_;
  UnusedParameters unused_;
  StaticGraph graph_;
  ReductionObserver* observer_ = nullptr;
  std::vector<CommHookFuture> futures_;  // backward waits for them at its end

  std::mutex mutex_;  // autograd has one thread per device
  StepState step_;
  bool is_in_hook_ = false;
  CallerStreams caller_streams_;
  Replaced replaced_;
  StepTimes times_;

  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::vector<parallel::GradientHook> hooks_;  // last: removed first; empty after remove_hooks()
};

}  // namespace cohort::ddp
