#include "cohort/dtensor/dispatch/rule.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "cohort/dtensor/dispatch/product_in_pieces.h"
#include "cohort/dtensor/dispatch/sharding_cache.h"
#include "cohort/dtensor/wrapper/comm_log.h"
#include "cohort/dtensor/wrapper/redistributed_view.h"
#include "cohort/dtensor/wrapper/redistribution.h"

namespace cohort::dtensor {
namespace {

bool is_written(const Rule& rule, const Operand& operand) {
  return operand.is_written ||
         std::find(rule.written.begin(), rule.written.end(), operand.argument) != rule.written.end();
}

// More bytes than any tensor has.
constexpr double kCostOfHeld = 1e18;

double bytes_of(int64_t numel, const Operand& like) {
  return static_cast<double>(numel * static_cast<int64_t>(like.tensor.itemsize()));
}

// Returns the operand that result `index` of an operation in place is; -1 if it is a new tensor.
int64_t written_as_result(const Call& call, size_t index) {
  const auto* alias = call.op().schema().returns()[index].alias_info();
  if (!alias || !alias->isWrite()) return -1;
  for (size_t i = 0; i < call.operands().size(); ++i) {
    const auto& operand = call.operand(i);
    if (operand.is_written && *call.op().schema().arguments()[operand.argument].alias_info() == *alias) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

// Whether the option would redistribute a written operand. A result that is a written operand must keep its placements.
bool redistributes_written(const Call& call, const Axis& axis, const Option& option) {
  for (size_t i = 0; i < option.results.size(); ++i) {
    const auto operand = written_as_result(call, i);
    if (operand >= 0 && !(option.results[i] == call.placement(operand, axis.index))) return true;
  }
  return false;
}

// Returns the cost in bytes; negative if the option is not possible.
double cost_of_option(const Rule& rule, const Call& call, const Axis& axis, const Option& option) {
  if (redistributes_written(call, axis, option)) return -1;
  double cost = 0;
  for (size_t i = 0; i < option.operands.size(); ++i) {
    const auto& operand = call.operand(i);
    const auto& now = call.placement(i, axis.index);
    if (now == option.operands[i]) continue;
    if (is_written(rule, operand)) return -1;
    // A gathered operand also serves later operations, so it replaces an exchange that is cheaper only for this operation.
    const bool is_gather = option.num_summands > 0 && now.is_shard_like();
    const auto& to = is_gather ? Placement(Replicate()) : option.operands[i];
    const double own = redistribution_cost(now, to, axis.num_ranks, bytes_of(operand.tensor.numel(), operand));
    const bool is_held = is_dtensor(operand.tensor) && dtensor_data(operand.tensor).is_held;
    cost += own > 0 && is_held ? kCostOfHeld : own;
  }
  if (cost == 0 || option.num_summands == 0) return cost;
  return cost +
         redistribution_cost(Partial(), Shard(0), axis.num_ranks, bytes_of(option.num_summands, call.operand(0)));
}

[[noreturn]] void refuse_in_place(const Rule& rule, const Call& call, const Axis& axis) {
  const auto written = std::find_if(call.operands().begin(), call.operands().end(),
                                    [&](const auto& operand) { return is_written(rule, operand); });
  const auto index = written - call.operands().begin();
  TORCH_CHECK_NOT_IMPLEMENTED(false, "[cohort] DTensor: ", call.name(), " works in place on a tensor of shape ",
                              written->sizes(), " that is ", call.placement(index, axis.index), " on axis ", axis.index,
                              " of its mesh, and needs it in other placements\n  hint: use the form "
                              "that returns a new tensor, or "
                              "DTensor(x).redistribute({Replicate()}) before");
}

Option all_replicated(const Call& call) {
  return {Placements(call.operands().size(), Replicate()), Placements(call.num_results(), Replicate())};
}

Option choose_option(const Rule& rule, const Call& call, const Axis& axis) {
  std::vector<Option> options;
  rule.options(call, axis, options);
  options.push_back(all_replicated(call));
  std::optional<size_t> best;
  double best_cost = 0;
  for (size_t i = 0; i < options.size(); ++i) {
    const double cost = cost_of_option(rule, call, axis, options[i]);
    if (cost < 0 || (best && cost >= best_cost)) continue;
    best = i;
    best_cost = cost;
  }
  if (!best) refuse_in_place(rule, call, axis);
  return std::move(options[*best]);
}

// Updates views, and refuses operands that cannot be written, before anything else happens. Returns whether a view will be
// written.
bool prepare_operands(const Rule& rule, const Call& call) {
  bool writes_view = false;
  for (const auto& operand : call.operands()) {
    if (!is_dtensor(operand.tensor)) continue;
    const auto& data = dtensor_data(operand.tensor);
    if (!data.redistributed_view) continue;
    if (is_written(rule, operand)) {
      check_can_be_written(data, call.name());
      writes_view = true;
    }
    follow_tensor(data);
  }
  return writes_view;
}

void finish_writes(const Rule& rule, const Call& call) {
  for (const auto& operand : call.operands()) {
    if (is_dtensor(operand.tensor) && is_written(rule, operand)) bring_to_tensor(dtensor_data(operand.tensor));
  }
}

// Redistributes all operands but `left_out`; -1 means all.
void redistribute_operands(Call& call, const CachedSharding& entry, int64_t left_out) {
  for (size_t i = 0; i < call.operands().size(); ++i) {
    if (static_cast<int64_t>(i) == left_out) continue;
    const auto& tensor = call.operand(i).tensor;
    const auto& to = entry.plan.operands[i];
    if (is_dtensor(tensor)) {
      const auto& data = dtensor_data(tensor);
      const auto move = [&] {
        return entry.may_share ? cached_redistribution(tensor, to)
                               : redistributed(data.local, data.mesh, data.placements, to, tensor.sizes());
      };
      call.set_local(i, entry.stays[i] ? data.local : move());
    } else if (!entry.stays[i]) {
      call.set_local(i, redistributed(tensor, call.mesh(), replicated(call.mesh()), to, tensor.sizes()));
    }
  }
}

// ---- Results ----

LayoutPtr layout_of(const Call& call, CachedSharding& entry, size_t index) {
  auto layout = entry.layouts[index].lock();
  // A key does not distinguish meshes of the same shape.
  if (layout && (&layout->mesh == &call.mesh() || layout->mesh == call.mesh())) return layout;
  for (const auto& operand : call.operands()) {
    if (!is_dtensor(operand.tensor)) continue;
    const auto& data = dtensor_data(operand.tensor);
    if (data.placements == entry.plan.results[index]) layout = data.layout;
  }
  if (!layout || !(layout->mesh == call.mesh()) || !(layout->placements == entry.plan.results[index])) {
    layout = std::make_shared<const Layout>(call.mesh(), entry.plan.results[index]);
  }
  entry.layouts[index] = layout;
  return layout;
}

// Whether results own their memory. A view shares the memory of its base.
bool is_own(const Call& call, const CachedSharding& entry) {
  if (entry.may_share) return true;
  return is_dtensor(call.operand(0).tensor) && dtensor_data(call.operand(0).tensor).is_own;
}

// Counts writes of local tensors, which may have other wrappers. LibTorch counts writes of the wrappers itself.
void count_writes(const Call& call, const CachedSharding& entry) {
  for (const int64_t index : entry.written) {
    const auto& local = dtensor_data(call.operand(index).tensor).local;
    if (!local.is_inference()) local.unsafeGetTensorImpl()->bump_version();
  }
}

// Lets the local tensor of a view share its base's version counter, as LibTorch's views do. It was made below autograd without.
void count_with_viewed(const Call& call, const at::Tensor& local) {
  if (!is_dtensor(call.operand(0).tensor)) return;
  const auto& viewed = dtensor_data(call.operand(0).tensor).local;
  if (viewed.is_inference() || local.is_inference() || !local.is_alias_of(viewed)) return;
  local.unsafeGetTensorImpl()->set_version_counter(viewed.unsafeGetTensorImpl()->version_counter());
}

// `viewed`: for a view, the first operand's local tensor as the operation got it.
void wrap_results(const Rule& rule, Call& call, CachedSharding& entry, const at::Tensor& viewed) {
  if (rule.shapes_vary) entry.shapes.clear();
  const auto wrap = [&](at::Tensor local, size_t shape, size_t index) {
    if (entry.shapes.empty()) entry.shapes = rule.shapes(call, entry.plan);
    const auto& full = entry.shapes.at(shape);
    auto result = make_dtensor(std::move(local), layout_of(call, entry, index), full.sizes, full.strides);
    const auto& data = dtensor_data(result);
    if (data.layout->is_partial) data.is_own = is_own(call, entry);
    if (!entry.may_share && !rule.run) count_with_viewed(call, data.local);
    if (viewed.defined()) {
      note_redistributed_view(result, call.operand(0).tensor, viewed, entry.plan.operands[0],
                              /*keeps_order=*/rule.view == ViewKind::kInOrder);
    }
    return result;
  };
  for (size_t i = 0; i < call.num_results(); ++i) {
    auto& result = call.result(i);
    if (entry.written_results[i] >= 0) {
      result = call.operand(entry.written_results[i]).tensor;
    } else if (result.isTensor() && result.toTensor().defined()) {
      auto wrapped = wrap(result.toTensor(), i, i);
      if (rule.view != ViewKind::kNone) note_view(wrapped, call.operand(0).tensor, rule.view);
      call.result(i) = std::move(wrapped);
    } else if (result.isTensorList()) {
      auto list = result.toTensorVector();
      for (size_t item = 0; item < list.size(); ++item) list[item] = wrap(list[item], item, i);
      call.result(i) = std::move(list);
    }
  }
}

std::shared_ptr<CachedSharding> examined(const Rule& rule, const Call& call) {
  auto entry = std::make_shared<CachedSharding>();
  entry->plan = choose_plan(rule, call);
  const auto full = replicated(call.mesh());
  for (size_t i = 0; i < call.operands().size(); ++i) {
    const auto& tensor = call.operand(i).tensor;
    if (call.operand(i).is_written && is_dtensor(tensor)) entry->written.push_back(static_cast<int64_t>(i));
    entry->stays.push_back(entry->plan.operands[i] == (is_dtensor(tensor) ? dtensor_data(tensor).placements : full));
  }
  entry->may_share = !rule.shares_memory;
  for (size_t i = 0; i < call.num_results(); ++i) {
    const auto* alias = call.op().schema().returns()[i].alias_info();
    entry->may_share &= !alias || alias->isWrite();
    entry->written_results.push_back(written_as_result(call, i));
    entry->layouts.emplace_back();
  }
  if (rule.product) entry->gather = row_gather(*rule.product, call, entry->plan);
  return entry;
}

std::shared_ptr<CachedSharding> cached_or_new_sharding(const Rule& rule, const Call& call) {
  CallKey key(rule, call);
  if (!key.is_complete()) return examined(rule, call);
  auto entry = find_cached_sharding(key);
  if (entry) return entry;
  entry = examined(rule, call);
  cache_sharding(std::move(key), entry);
  return entry;
}

}  // namespace

Plan choose_plan(const Rule& rule, const Call& call) {
  Plan plan{std::vector<Placements>(call.operands().size()), std::vector<Placements>(call.num_results())};
  for (int64_t index = 0; index < call.mesh().ndim(); ++index) {
    const Axis axis{index, call.mesh().size(index)};
    auto option = choose_option(rule, call, axis);
    for (size_t i = 0; i < plan.operands.size(); ++i) plan.operands[i].push_back(std::move(option.operands[i]));
    for (size_t i = 0; i < plan.results.size(); ++i) plan.results[i].push_back(std::move(option.results[i]));
  }
  return plan;
}

void run_by_rule(const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const AtWork at_work(&op,
                       [](const void* handle) { return name_of(*static_cast<const c10::OperatorHandle*>(handle)); });
  Call call(op, stack);
  const bool writes_view = prepare_operands(rule, call);
  const auto entry = cached_or_new_sharding(rule, call);
  const bool in_pieces = entry->gather && comes_in_pieces(call, *entry->gather, entry->plan);
  redistribute_operands(call, *entry, in_pieces ? entry->gather->operand : -1);
  const bool is_view = !entry->may_share && !rule.shares_memory && is_dtensor(call.operand(0).tensor);
  const auto viewed = is_view ? call.local_tensor(call.operand(0).argument) : at::Tensor();
  if (in_pieces) {
    multiply_in_pieces(call, *entry->gather, entry->plan);
  } else if (rule.run) {
    rule.run(call, entry->plan);
  } else {
    call.run();
  }
  if (!entry->written.empty()) count_writes(call, *entry);
  if (writes_view) finish_writes(rule, call);
  wrap_results(rule, call, *entry, viewed);
  call.commit();
}

}  // namespace cohort::dtensor
