/// StageRun: a stage's work in a step, microbatch by microbatch, and the tensors that it keeps from forward to backward.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/parallel/pipeline/pipeline_stage.h"
#include "cohort/parallel/pipeline/split_backward.h"

namespace cohort::fsdp {
class ShardedModule;
}

namespace cohort::ddp {
class NoSync;
class Replica;
}  // namespace cohort::ddp

namespace cohort::pipeline {

class StageRun {
 public:
  StageRun(const PipelineStage& stage, int num_microbatches);
  ~StageRun();

  const PipelineStage& stage() const { return stage_; }
  /// Call it before each step. `has_backward`: gradients will be computed. `requires_gradient_sync`: reduces them, and gradients
  /// that earlier steps left on this rank, over replicas and shards.
  void begin(bool has_backward, bool requires_gradient_sync);
  /// Call it after each step, whether it succeeded or not: restores the wrappers.
  void end();

  /// Runs forward of a microbatch; inputs become leaves of its own graph, except on the first stage. `kwargs`: further arguments
  /// of forward.
  void forward(int microbatch, const TensorList& inputs, const std::vector<bool>& require_grad,
               const TensorList& kwargs);
  const TensorList& outputs(int microbatch) const { return at(microbatch).outputs; }
  /// Sets the tensor from which backward of the last stage begins.
  void set_loss(int microbatch, at::Tensor loss) { at(microbatch).loss = std::move(loss); }
  /// Without backward the outputs are not needed any more.
  void drop_outputs(int microbatch) { at(microbatch).outputs.clear(); }

  /// `output_grads`: one per output, undefined for outputs without one; empty for the last stage.
  void backward(int microbatch, const TensorList& output_grads, bool in_parts);
  void backward_weight(int microbatch);
  /// Returns one per input, undefined for inputs without gradient. A second call returns an empty list.
  TensorList take_input_grads(int microbatch) { return std::exchange(at(microbatch).input_grads, {}); }

  // For a stage whose parameters are sharded; others do nothing.
  void unshard();
  void reshard();
  /// Call it when all microbatches' gradients are there: reduces those that backward has not reduced.
  void reduce_grad();
  /// Call it at the end of a list: does the remaining reductions and frees full parameters.
  void complete();
  /// Whether the optimizer of a replica steps in backward passes.
  bool steps_optimizer() const;

 private:
  struct Microbatch {
    TensorList inputs, outputs;
    at::Tensor loss;
    TensorList output_grads, input_grads;
    std::optional<WeightPart> weight_part;
  };
  Microbatch& at(int microbatch) { return microbatches_[static_cast<size_t>(microbatch)]; }
  const Microbatch& at(int microbatch) const { return microbatches_[static_cast<size_t>(microbatch)]; }
  TensorList roots(const Microbatch& microbatch) const;
  void run_full(Microbatch& microbatch);
  void synchronize_last(const TensorList& outputs);

  PipelineStage stage_;
  std::vector<Microbatch> microbatches_;
  TensorList parameters_;  ///< full ones, in which the graph ends
  // The stage's module, or modules in it.
  std::vector<ddp::Replica*> replicas_;
  std::vector<fsdp::ShardedModule*> sharded_modules_;
  std::vector<std::unique_ptr<ddp::NoSync>> no_syncs_;  ///< of the replicas, while a step runs
  int num_backwards_ = 0;
  bool has_backward_ = false;
  bool requires_gradient_sync_ = true;
  bool is_reduced_ = false;
};

}  // namespace cohort::pipeline
