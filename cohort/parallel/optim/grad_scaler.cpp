#include "cohort/parallel/optim/grad_scaler.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <utility>

#include "cohort/base/log/log.h"
#include "cohort/comm/backend/accelerator.h"
#include "cohort/comm/call/purpose.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/wrapper/wrapper.h"
#include "cohort/parallel/module/sharded_tensors.h"

namespace cohort::amp {
namespace {

const comm::Purpose kInfSearch(12, "GradScaler's search for gradients that are not finite", comm::Purpose::kByName);

using torch::optim::Optimizer;

constexpr const char* kStateKeys[] = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"};

// A tensor of one number, and its copies on other devices.
class DeviceCopies {
 public:
  explicit DeviceCopies(at::Tensor master) : master_(std::move(master)) {}

  const at::Tensor& on(at::Device device) {
    for (const auto& copy : copies_) {
      if (copy.device() == device) return copy;
    }
    return copies_.emplace_back(master_.to(master_.options().device(device), /*non_blocking=*/true, /*copy=*/true));
  }
  const std::vector<at::Tensor>& all() const { return copies_; }

 private:
  at::Tensor master_;
  std::vector<at::Tensor> copies_;
};

std::vector<at::Tensor> parameters_of(const Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  return parameters;
}

// Returns lists of one device and dtype. `takes_half`: includes float16 gradients of parameters that are not shards.
std::vector<std::vector<at::Tensor>> gradients_to_unscale(const Optimizer& optimizer, bool takes_half) {
  std::vector<std::vector<at::Tensor>> lists;
  for (const auto& parameter : parameters_of(optimizer)) {
    auto gradient = parameter.grad();
    if (!gradient.defined()) continue;
    TORCH_CHECK_VALUE(
        gradient.scalar_type() != at::kHalf || takes_half || !parallel::sharding_groups(parameter).empty(),
        "Attempting to unscale FP16 gradients.");
    if (gradient.is_sparse()) gradient = gradient._values();
    if (is_dtensor(gradient)) {  // a sum over terms that are not finite is not finite
      if (!gradient.is_inference()) gradient.unsafeGetTensorImpl()->bump_version();
      gradient = dtensor::dtensor_data(gradient).local;  // also for Partial: all ranks write the same
    }
    const auto found = std::find_if(lists.begin(), lists.end(), [&](const std::vector<at::Tensor>& list) {
      return list.front().device() == gradient.device() && list.front().scalar_type() == gradient.scalar_type();
    });
    (found == lists.end() ? lists.emplace_back() : *found).push_back(gradient);
  }
  return lists;
}

c10::impl::GenericDict empty_state() { return c10::impl::GenericDict(c10::StringType::get(), c10::AnyType::get()); }

double number_in(const c10::impl::GenericDict& state, const char* key) {
  const auto entry = state.find(key);
  TORCH_CHECK_VALUE(entry != state.end(), "[cohort] The source state dict has no entry \"", key, "\".");
  const auto& value = entry->value();
  TORCH_CHECK_VALUE(value.isDouble() || value.isInt(), "[cohort] \"", key, "\" of the source state dict is ",
                    value.tagKind(), ", not a number.");
  return value.isDouble() ? value.toDouble() : static_cast<double>(value.toInt());
}

std::string missing_device(std::optional<c10::DeviceType> type) {
  return type ? c10::DeviceTypeName(*type) : std::string("an accelerator");
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options) {
  const auto accelerator = comm::accelerator_type();
  const bool has_device =
      options.device ? options.device == at::kCPU || options.device == accelerator : accelerator.has_value();
  if (options_.enabled && !has_device) {
    base::log_warning("GradScaler is enabled, but " + missing_device(options.device) +
                      " is not available.  Disabling.");
    options_.enabled = false;
  }
  if (!options_.device) options_.device = accelerator.value_or(at::kCPU);
  if (!options_.enabled) return;
  TORCH_CHECK(options.growth_factor > 1.0, "The growth factor must be > 1.0.");
  TORCH_CHECK(options.backoff_factor < 1.0, "The backoff factor must be < 1.0.");
}

GradScaler::~GradScaler() = default;
GradScaler::GradScaler(GradScaler&&) noexcept = default;
GradScaler& GradScaler::operator=(GradScaler&&) noexcept = default;

void GradScaler::check_has_scale(const char* function) const {
  TORCH_CHECK(scale_.defined(), "Attempted ", function,
              " but _scale is None.  This may indicate your script did not use scaler.scale(loss or outputs) earlier "
              "in the iteration.");
}

void GradScaler::make_scale(c10::Device device) {
  if (scale_.defined()) return;
  scale_ = at::full({}, options_.init_scale, at::TensorOptions(at::kFloat).device(device));
  growth_tracker_ = at::full({}, init_growth_tracker_, at::TensorOptions(at::kInt).device(device));
}

at::Tensor GradScaler::scale(const at::Tensor& outputs) {
  if (!is_enabled()) return outputs;
  make_scale(outputs.device());
  return outputs * scale_.to(outputs.device(), /*non_blocking=*/true);
}

std::vector<at::Tensor> GradScaler::scale(const std::vector<at::Tensor>& outputs) {
  if (!is_enabled() || outputs.empty()) return outputs;
  make_scale(outputs.front().device());
  DeviceCopies scales(scale_);
  std::vector<at::Tensor> scaled;
  for (const auto& output : outputs) scaled.push_back(output * scales.on(output.device()));
  return scaled;
}

std::vector<at::Tensor> GradScaler::unscale_gradients(Optimizer& optimizer) const {
  const at::NoGradGuard no_grad;
  // The reciprocal in float64 is more precise; MPS does not have float64.
  DeviceCopies inverse_scales(scale_.is_mps() ? scale_.reciprocal()
                                              : scale_.to(at::kDouble).reciprocal().to(at::kFloat));
  DeviceCopies found_inf(at::zeros({}, scale_.options()));
  for (const auto& list : gradients_to_unscale(optimizer, options_.process_group != nullptr)) {
    const auto device = list.front().device();
    auto flag = found_inf.on(device);
    at::_amp_foreach_non_finite_check_and_unscale_(list, flag, inverse_scales.on(device));
  }
  return found_inf.all();
}

// Returns an undefined tensor if there are no other ranks.
at::Tensor GradScaler::agreed_with_ranks(const Optimizer& optimizer, std::vector<at::Tensor>& found_inf) const {
  std::vector<std::pair<Group, at::Device>> groups;
  const auto add = [&](const Group& group, c10::Device device) {
    const auto is_it = [&](const auto& known) { return known.first == group; };
    if (std::none_of(groups.begin(), groups.end(), is_it)) groups.emplace_back(group, device);
  };
  for (const auto& parameter : parameters_of(optimizer)) {
    for (const auto& group : parallel::sharding_groups(parameter)) add(group, parameter.device());
  }
  if (options_.process_group) add(options_.process_group, scale_.device());
  if (groups.empty()) return {};
  auto flag = at::zeros({1}, scale_.options());
  for (const auto& found : found_inf) flag.logical_or_(found.to(flag.device()));
  const comm::CalledFor purpose(kInfSearch);
  for (const auto& [group, device] : groups) {
    auto shared = flag.to(device);
    all_reduce(shared, {.op = ReduceOp::MAX, .group = group});
    flag = shared.to(scale_.device());
  }
  return flag.squeeze(0);
}

void GradScaler::unscale_(Optimizer& optimizer) {
  if (!is_enabled()) return;
  check_has_scale("unscale_");
  auto& state = optimizers_[&optimizer];
  TORCH_CHECK(state.stage != Stage::kUnscaled,
              "unscale_() has already been called on this optimizer since the last update().");
  TORCH_CHECK(state.stage != Stage::kStepped, "unscale_() is being called after step().");
  auto found_inf = unscale_gradients(optimizer);
  state.stage = Stage::kUnscaled;
  if (const auto agreed = agreed_with_ranks(optimizer, found_inf); agreed.defined()) found_inf = {agreed};
  state.found_inf = std::move(found_inf);
}

at::Tensor GradScaler::step(Optimizer& optimizer, const std::function<at::Tensor()>& closure) {
  if (!is_enabled()) return optimizer.step(closure);
  TORCH_CHECK(!closure, "Closure use is not currently supported if GradScaler is enabled.");
  check_has_scale("step");
  auto& state = optimizers_[&optimizer];
  TORCH_CHECK(state.stage != Stage::kStepped, "step() has already been called since the last update().");
  if (state.stage == Stage::kReady) unscale_(optimizer);
  TORCH_CHECK(!state.found_inf.empty(), "No inf checks were recorded for this optimizer.");
  const bool is_finite = std::none_of(state.found_inf.begin(), state.found_inf.end(),
                                      [](const at::Tensor& found) { return found.item<float>() != 0; });
  const auto result = is_finite ? optimizer.step() : at::Tensor();
  has_stepped_ = is_finite;
  state.stage = Stage::kStepped;
  return result;
}

void GradScaler::update() {
  if (!is_enabled()) return;
  check_has_scale("update");
  at::Tensor found_inf;
  for (const auto& [optimizer, state] : optimizers_) {
    for (const auto& found : state.found_inf) {
      const auto there = found.to(scale_.device(), /*non_blocking=*/true);
      found_inf = found_inf.defined() ? found_inf + there : there;
    }
  }
  TORCH_CHECK(found_inf.defined(), "No inf checks were recorded prior to update.");
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf, options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
  optimizers_.clear();
}

void GradScaler::update(double new_scale) {
  if (!is_enabled()) return;
  check_has_scale("update");
  scale_.fill_(new_scale);
  optimizers_.clear();
}

void GradScaler::update(const at::Tensor& new_scale) {
  if (!is_enabled()) return;
  check_has_scale("update");
  TORCH_CHECK(new_scale.device().type() == options_.device && new_scale.numel() == 1 && !new_scale.requires_grad(),
              "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with "
              "requires_grad=False.");
  scale_.copy_(new_scale.reshape(at::IntArrayRef()));
  optimizers_.clear();
}

double GradScaler::get_scale() const {
  if (!is_enabled()) return 1.0;
  return scale_.defined() ? scale_.item<double>() : options_.init_scale;
}

c10::impl::GenericDict GradScaler::state_dict() const {
  auto state = empty_state();
  if (!is_enabled()) return state;
  state.insert("scale", get_scale());
  state.insert("growth_factor", options_.growth_factor);
  state.insert("backoff_factor", options_.backoff_factor);
  state.insert("growth_interval", options_.growth_interval);
  state.insert("_growth_tracker", growth_tracker_.defined() ? growth_tracker_.item<int64_t>() : init_growth_tracker_);
  return state;
}

void GradScaler::load_state_dict(const c10::IValue& state_dict) {
  if (!is_enabled()) return;
  TORCH_CHECK_VALUE(state_dict.isGenericDict(), "The source state dict is ", state_dict.tagKind(), ", not a dict.");
  const auto state = state_dict.toGenericDict();
  TORCH_CHECK(!state.empty(),
              "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.");
  const double scale = number_in(state, "scale");
  const double growth_factor = number_in(state, "growth_factor");
  const double backoff_factor = number_in(state, "backoff_factor");
  const auto growth_interval = static_cast<int64_t>(number_in(state, "growth_interval"));
  const auto growth_tracker = static_cast<int64_t>(number_in(state, "_growth_tracker"));
  optimizers_.clear();
  options_.init_scale = scale;
  options_.growth_factor = growth_factor;
  options_.backoff_factor = backoff_factor;
  options_.growth_interval = growth_interval;
  init_growth_tracker_ = growth_tracker;
  if (!scale_.defined()) return;
  scale_.fill_(scale);
  growth_tracker_.fill_(growth_tracker);
}

void GradScaler::save(torch::serialize::OutputArchive& archive) const {
  for (const auto& entry : state_dict()) archive.write(entry.key().toStringRef(), entry.value());
}

void GradScaler::load(torch::serialize::InputArchive& archive) {
  auto state = empty_state();
  for (const char* key : kStateKeys) {
    c10::IValue value;
    if (archive.try_read(key, value)) state.insert(key, value);
  }
  load_state_dict(state);
}

torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive, const GradScaler& scaler) {
  scaler.save(archive);
  return archive;
}

torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive, GradScaler& scaler) {
  scaler.load(archive);
  return archive;
}

}  // namespace cohort::amp
