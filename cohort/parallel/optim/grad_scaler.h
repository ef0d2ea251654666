/// GradScaler: scales losses so that float16 gradients neither vanish nor overflow. Semantics, defaults and texts of
/// torch/amp/grad_scaler.py; with sharded parameters, of torch/distributed/fsdp/sharded_grad_scaler.py.
///
///     cohort::amp::GradScaler scaler;
///     for (...) {
///       optimizer.zero_grad();
///       scaler.scale(loss_of(batch)).backward();
///       scaler.unscale_(optimizer);   // only where gradients are to be clipped or looked at
///       scaler.step(optimizer);       // unless a gradient is infinite or NaN
///       scaler.update();              // the scale grows, or, after such a gradient, shrinks
///     }
///
/// Ranks must agree on whether they step. Under DistributedDataParallel they do, since their gradients are the same. If an
/// optimizer's parameters are shards, or DTensors that an axis shards, all ranks of the shards' groups exchange whether one of
/// their gradients is not finite: unscale_, or else step, is then collective, also for ranks without gradients. If ranks have
/// different parameters for other reasons, such as stages of a pipeline, set `process_group` to the group of all that must agree.
/// Thread-safety: none.
#pragma once

#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace cohort::amp {

struct GradScalerOptions {
  /// The device type; if absent, that of the machine's accelerator. Without such a device the scaler warns and disables itself,
  /// so set at::kCPU to scale on the CPU.
  std::optional<c10::DeviceType> device = {};
  double init_scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  /// The number of updates in a row without infinities and NaNs after which the scale grows.
  int64_t growth_interval = 2000;
  /// If false, scale and step act as if there were no scaler, and the rest does nothing.
  bool enabled = true;
  /// The group that must also agree, after the groups of the optimizers' sharded parameters. If null, only those groups.
  Group process_group = {};
};

class COHORT_API GradScaler {
 public:
  /// Throws c10::Error for a growth factor of at most 1 or a backoff factor of at least 1.
  explicit GradScaler(const GradScalerOptions& options = {});
  ~GradScaler();
  GradScaler(GradScaler&&) noexcept;
  GradScaler& operator=(GradScaler&&) noexcept;

  /// Returns the outputs times the scale, each on its device. The first call decides on which device the scale lies.
  at::Tensor scale(const at::Tensor& outputs);
  std::vector<at::Tensor> scale(const std::vector<at::Tensor>& outputs);

  /// Divides the gradients of the optimizer's parameters by the scale, in place; the host does not wait unless ranks must agree.
  /// Throws c10::ValueError for float16 gradients, unless they belong to shards or the ranks of a group agree, as in Python's
  /// ShardedGradScaler; then none is changed. Throws c10::Error if called twice before update(), after step(), or before scale();
  /// c10::DistBackendError if the exchange between ranks fails.
  void unscale_(torch::optim::Optimizer& optimizer);

  /// Does unscale_ if it has not been called, then optimizer.step(), unless a gradient is not finite. The host waits for the
  /// device. Returns the optimizer's result, or an undefined tensor if it did not step. `closure`: only if disabled. Throws as
  /// unscale_, and c10::Error if called twice before update(), with a closure, or if no parameter has a gradient and none is
  /// sharded.
  at::Tensor step(torch::optim::Optimizer& optimizer, const std::function<at::Tensor()>& closure = {});
  /// False if the last step() skipped the optimizer's, since a gradient was not finite. Does not wait for a device.
  bool has_stepped() const { return has_stepped_; }

  /// Call it at the end of an iteration, after step() of all optimizers. Throws c10::Error if no gradient has been checked.
  void update();
  /// Sets the scale instead; copies the one element of a tensor. Throws c10::Error for a tensor of another device or size, or one
  /// that requires a gradient.
  void update(double new_scale);
  void update(const at::Tensor& new_scale);

  /// The scale; 1 if disabled. The host waits for the device.
  double get_scale() const;
  double get_growth_factor() const { return options_.growth_factor; }
  void set_growth_factor(double new_factor) { options_.growth_factor = new_factor; }
  double get_backoff_factor() const { return options_.backoff_factor; }
  void set_backoff_factor(double new_factor) { options_.backoff_factor = new_factor; }
  int64_t get_growth_interval() const { return options_.growth_interval; }
  void set_growth_interval(int64_t new_interval) { options_.growth_interval = new_interval; }
  bool is_enabled() const { return options_.enabled; }

  /// Returns a dict with Python's keys: scale, growth_factor, backoff_factor, growth_interval, _growth_tracker; empty if
  /// disabled. Call it after update().
  c10::impl::GenericDict state_dict() const;
  /// Loads such a dict, also one read from a pickle. Does nothing if disabled. Throws c10::Error for an empty dict,
  /// c10::ValueError if it is not a dict, or an entry is missing or not a number; then nothing is changed.
  void load_state_dict(const c10::IValue& state_dict);

  /// The same in an archive, for torch::save and torch::load.
  void save(torch::serialize::OutputArchive& archive) const;
  void load(torch::serialize::InputArchive& archive);

 private:
  enum class Stage { kReady, kUnscaled, kStepped };
  struct OptimizerState {
    Stage stage = Stage::kReady;
    std::vector<at::Tensor> found_inf;  // one per device, or the ranks' common one
  };

  void check_has_scale(const char* function) const;
  void make_scale(c10::Device device);
  std::vector<at::Tensor> unscale_gradients(torch::optim::Optimizer& optimizer) const;
  at::Tensor agreed_with_ranks(const torch::optim::Optimizer& optimizer, std::vector<at::Tensor>& found_inf) const;

  GradScalerOptions options_;
  int64_t init_growth_tracker_ = 0;
  bool has_stepped_ = true;
  at::Tensor scale_;           // float32, undefined before scale()
  at::Tensor growth_tracker_;  // int32, with it
  std::map<const torch::optim::Optimizer*, OptimizerState> optimizers_;
};

COHORT_API torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                                       const GradScaler& scaler);
COHORT_API torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive, GradScaler& scaler);

}  // namespace cohort::amp
