/// PipelineRuntime: runs this rank's list of actions.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/agreement/agreement.h"
#include "cohort/comm/agreement/step_failure.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "cohort/parallel/pipeline/stage_run.h"
#include "cohort/parallel/pipeline/transfer/mailbox.h"
#include "cohort/parallel/pipeline/transfer/zero_copy_sends.h"
#include "cohort/pipeline/action_key.h"

namespace cohort::pipeline {

class PipelineRuntime {
 public:
  /// Requires: the order, with communication, is complete and ends. Throws c10::ValueError if `stages` are not those of this rank
  /// in `stage_ranks`.
  PipelineRuntime(PipelineOrder order, StageRanks stage_ranks, const std::vector<PipelineStage>& stages,
                  int num_microbatches, PipelineOptions options);

  TensorList run(const TensorList& inputs, const StepOptions& options, bool has_backward);

  /// See PipelineSchedule.
  at::Tensor clip_grad_norm_(const TensorList& parameters, double max_norm, double norm_type) const;
  at::Tensor mean_loss(const std::vector<at::Tensor>& losses) const;
  at::Tensor mean_loss(const std::function<std::vector<at::Tensor>()>& losses) const;
  void set_backward(const PipelineBackward& backward) { backward_ = backward; }

  const PipelineOrder& order() const { return order_; }
  const StageRanks& stage_ranks() const { return stage_ranks_; }
  int num_microbatches() const { return num_microbatches_; }
  bool has_dynamic_shapes() const { return options_.dynamic_shapes; }

 private:
  /// Facts about messages, known after the first step; training and evaluation each have their own.
  struct Shapes {
    bool are_known = false;
    bool are_counted = false;                   ///< whether a step has shown how large zero-copy sends are
    std::map<ActionKey, TensorMetas> received;  ///< by receive
    std::map<ActionKey, TensorMetas> sent;      ///< by send
  };
  /// The state of a running step, besides that of its stages.
  struct Step {
    Step(const Group& group, ReceiveBuffers& buffers, ZeroCopySends* zero_copy_sends)
        : mailbox(group, buffers, zero_copy_sends) {}
    Mailbox mailbox;
    std::vector<TensorList> inputs, kwargs, loss_kwargs;  ///< by microbatch
    std::vector<at::Tensor> targets;
    std::vector<TensorList> outputs;
    std::vector<at::Tensor> losses;
    bool has_backward = false;
    bool announces = false;
    bool returns_outputs = false;
    Shapes* shapes = nullptr;
    comm::StepFailure failure;
  };

  StageRun& stage_of(const Action& action) { return *stages_.at(action.stage); }
  const PipelineStage& first_here() const { return stages_.begin()->second->stage(); }
  bool is_local(int stage) const { return stages_.contains(stage); }
  /// The pipeline's group; null if this process is alone.
  Group group_of_ranks() const;
  int rank_of(int stage) const { return stage_ranks_[static_cast<size_t>(stage)]; }
  void check_stages() const;
  void take_given_shapes();
  void check_ties() const;
  void check_partner(const TiedParameter& tied) const;
  void check_optimizers() const;
  comm::Facts facts_of_shapes() const;
  comm::Facts facts_of_ties() const;
  void agree(bool has_backward) const;
  void share(const comm::StepFailure& failure, const std::string& what) const;
  std::unique_ptr<Step> make_step(bool has_backward);
  void begin(const TensorList& inputs, const StepOptions& options);
  void take_targets(const StepOptions& options);
  TensorList run_step(const TensorList& inputs, const StepOptions& options);
  void end();
  void run_list();
  TensorList results(const StepOptions& options);

  void perform(const Action& action);
  void forward(const Action& action);
  void run_forward(const Action& action, const TensorList& inputs, const std::vector<bool>& require_grad);
  void finish_last(const Action& action);
  at::Tensor scaled(const at::Tensor& loss) const;
  void backward(const Action& action);
  TensorList received_grads(const Action& action);
  Mailbox::Message take(const Action& receive);
  void send_forward(const Action& action);
  void send_backward(const Action& action);
  void expect(const Action& action);
  std::optional<TensorMetas> metas_of_receive(const Action& receive) const;
  // The actions of a rank that has failed: it keeps the order of messages, and computes nothing.
  void drain(const Action& action);
  void drop_message(const Action& receive);
  void send_zeros(const Action& action);

  void grow_zero_copy_memory();
  void share_tied_values();
  // Gradients from before the accumulating steps are not part of the exchange after them.
  TensorList take_tied_gradients() const;
  void add_tied_gradients(const TensorList& earlier);
  TensorList exchanged(const TensorList& own) const;
  at::Tensor here_too(const TiedParameter& tied) const;
  bool is_one_tensor(const TiedParameter& tied) const;
  bool counts_elsewhere(const at::Tensor& parameter) const;

  PipelineOrder order_;
  ActionList list_;  ///< the actions of this rank, as they run
  StageRanks stage_ranks_;
  int num_microbatches_;
  PipelineOptions options_;
  PipelineBackward backward_;
  Group group_;
  int rank_ = 0;
  std::map<int, std::unique_ptr<StageRun>> stages_;
  Shapes training_shapes_, evaluation_shapes_;
  ReceiveBuffers receive_buffers_;
  bool can_send_zero_copy_;                         ///< the same on all ranks
  std::unique_ptr<ZeroCopySends> zero_copy_sends_;  ///< from the second step on
  size_t zero_copy_bytes_ = 0;                      ///< of each rank's part, the same on all
  bool has_given_shapes_ = false;
  bool have_agreed_ = false;
  bool are_ties_equal_ = false;
  std::optional<TensorList> earlier_gradients_;  ///< of tied parameters, while gradients accumulate over steps
  std::unique_ptr<Step> step_;                   ///< while a step runs
  bool has_failed_ = false;
};

}  // namespace cohort::pipeline
