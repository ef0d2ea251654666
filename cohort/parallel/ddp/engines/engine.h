/// GradientEngine: the interface behind ddp::Reducer. Two engines implement it (ddp::Engine); tests add a third, the reference.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/ddp/buckets/bucket_plan.h"
#include "cohort/parallel/ddp/buckets/engine_input.h"
#include "cohort/parallel/ddp/engines/step_times.h"
#include "cohort/parallel/ddp/settings/comm_hook.h"
#include "cohort/parallel/ddp/settings/reduction_observer.h"

namespace cohort::ddp {

/// The methods are those of ddp::Reducer.
class GradientEngine {
 public:
  virtual ~GradientEngine() = default;
  virtual void prepare_forward() = 0;
  virtual void prepare(const std::vector<at::Tensor>& outputs) = 0;
  /// Whether prepare() of the next step needs the outputs.
  virtual bool needs_outputs() const = 0;
  virtual void finalize() = 0;
  virtual BucketPlan buckets() const = 0;
  /// The buckets at construction, for an engine that notes times.
  virtual BucketPlan first_buckets() const { return {}; }
  virtual bool has_rebuilt_buckets() const = 0;
  virtual void register_comm_hook(CommHook hook) = 0;
  virtual void divide_by_live_ranks(const c10::intrusive_ptr<c10d::Work>& count, int num_live) = 0;
  virtual void shadow_step() = 0;
  /// Makes the end of the next backward pass wait for these too, and throw what they throw.
  virtual void install_futures(const std::vector<CommHookFuture>& futures) = 0;
  /// Forgets an unfinished step. Gradients stay where they are.
  virtual void reset() = 0;
  /// Reduces over `group` from now on, and makes new buckets. Collective over `group`. Requires reset().
  virtual void update_process_group(const Group& group) = 0;
  /// Stops reducing gradients and waiting for them.
  virtual void remove_hooks() = 0;
  /// Reports each step's reduction to `observer`, which must outlive the engine.
  virtual void observe(ReductionObserver& observer) = 0;

  /// Null for an engine that notes no times.
  virtual StepTimes* times() { return nullptr; }
  /// The unused parameters of the last step, for an engine that knows them.
  virtual std::vector<size_t> unused() const { return {}; }
  /// Whether prepare() has begun a step that no backward pass has ended yet. False for an engine that does not know.
  virtual bool is_expecting() const { return false; }
  /// The reason why no further step can begin; empty if no step has failed.
  virtual std::string failure() const { return {}; }
};

std::unique_ptr<GradientEngine> make_overlap_engine(EngineInput input);
std::unique_ptr<GradientEngine> make_c10d_engine(EngineInput input);

/// For tests: makes the engine for reducers whose options have kEngineOfTests. Null until a test sets it.
using EngineMaker = std::unique_ptr<GradientEngine> (*)(EngineInput);
COHORT_TEST_API extern EngineMaker make_engine_of_tests;
inline constexpr auto kEngineOfTests = static_cast<Engine>(-1);

}  // namespace cohort::ddp
