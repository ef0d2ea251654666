/// StageRun: what a stage does in a step, microbatch by microbatch, and what it keeps from forward to backward.
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
  /// Before each step. `has_backward`: gradients will be computed. `synchronises`: what they, and those that steps before left
  /// on this rank, are summed up over copies and shards.
  void begin(bool has_backward, bool synchronises);
  /// After each step, whether it succeeded or not: wrappers are as they were.
  void end();

  /// Runs forward of a microbatch; what is given becomes leaves of its own graph, but on the first stage. `kwargs`: what forward
  /// is given after that.
  void forward(int microbatch, const TensorList& inputs, const std::vector<bool>& require_grad,
               const TensorList& kwargs);
  const TensorList& outputs(int microbatch) const { return at(microbatch).outputs; }
  /// Of the last stage: what backward begins with.
  void set_loss(int microbatch, at::Tensor loss) { at(microbatch).loss = std::move(loss); }
  /// Without backward nobody needs them any more.
  void drop_outputs(int microbatch) { at(microbatch).outputs.clear(); }

  /// `output_grads`: one per output, undefined where there is none; of the last stage none.
  void backward(int microbatch, const TensorList& output_grads, bool in_parts);
  void backward_weight(int microbatch);
  /// One per input, undefined where there is none. The second call has nothing.
  TensorList take_input_grads(int microbatch) { return std::exchange(at(microbatch).input_grads, {}); }

  // Of a stage whose parameters are sharded; others do nothing.
  void unshard();
  void reshard();
  /// All microbatches' gradients are there: what has not been reduced by backward is.
  void reduce_grad();
  /// At the end of a list: what it has left out of reducing and of letting parameters go.
  void complete();
  /// The optimizer of a replica steps in backward passes.
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
  void synchronise_last(const TensorList& outputs);

  PipelineStage stage_;
  std::vector<Microbatch> microbatches_;
  TensorList parameters_;  ///< whole ones, in which the graph ends
  // The stage's module, or modules in it.
  std::vector<ddp::Replica*> replicas_;
  std::vector<fsdp::ShardedModule*> sharded_modules_;
  std::vector<std::unique_ptr<ddp::NoSync>> no_syncs_;  ///< of the replicas, while a step runs
  int num_backwards_ = 0;
  bool has_backward_ = false;
  bool synchronises_ = true;
  bool is_reduced_ = false;
};

}  // namespace cohort::pipeline
