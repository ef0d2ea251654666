#include "cohort/checkpoint/state/model_shards.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

#include "cohort/checkpoint/optimizer/optimizer_values.h"
#include "cohort/checkpoint/state/tied_names.h"
#include "cohort/comm/agreement/rank_exchange.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/wrapper/full_tensor.h"
#include "cohort/mesh/shard.h"
#include "cohort/parallel/fsdp/full_tensor.h"
#include "cohort/parallel/module/purpose.h"
#include "cohort/parallel/module/sharded_tensors.h"

namespace cohort::checkpoint::detail {
namespace {

using Value = c10::IValue;

// Checks that the order of ranks in the group, by which fully_shard assigns rows, is that of the mesh's coordinates.
void check_place(const fsdp::ShardedParameter& parameter) {
  const auto part = parameter.spec->local_shard();
  const auto& sizes = parameter.full.sizes();
  bool is_same = parameter.shard.sizes() == at::IntArrayRef(part.shape);
  if (parameter.model_shard) {  // the offset is within this rank's local tensor
    const auto& mesh = parameter.spec->mesh();
    for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
      const auto order = mesh.group_order(axis);
      is_same = is_same && std::is_sorted(order.begin(), order.end());
    }
  } else if (parameter.dim == 0 && parameter.shard.numel() > 0 && is_same) {
    const auto row = std::accumulate(sizes.begin() + 1, sizes.end(), int64_t{1}, std::multiplies<>());
    is_same = part.offset[0] * row == parameter.offset;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(is_same, "[cohort] the mesh of parameter \"", parameter.name,
                              "\" has its ranks in another order than their group, so its parts cannot be told apart\n"
                              "  hint: give fully_shard a mesh whose ranks ascend");
}

// Returns what other ranks need to receive the value: (key, sizes, dtype) of a tensor, (key, value) of a plain value.
Value header_of(const std::string& key, const StateValue& value) {
  if (!value.is_tensor()) return c10::ivalue::Tuple::create({Value(key), value.value});
  return c10::ivalue::Tuple::create(
      {Value(key), Value(value.tensor.sizes().vec()), Value(static_cast<int64_t>(value.tensor.scalar_type()))});
}

struct Header {
  explicit Header(const Value& value) {
    const auto& elements = value.toTupleRef().elements();
    key = elements[0].toStringRef();
    is_tensor = elements.size() == 3;
    if (!is_tensor) {
      plain = elements[1];
      return;
    }
    for (const Value& size : elements[1].toListRef()) sizes.push_back(size.toInt());
    dtype = static_cast<c10::ScalarType>(elements[2].toInt());
  }

  std::string key;
  bool is_tensor = false;
  Value plain;
  std::vector<int64_t> sizes;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
};

// Returns rank `source`'s tensor, on every rank.
at::Tensor sent(const at::Tensor& own, const Header& header, c10::Device device, int source, const Group& group) {
  const bool is_source = group->getRank() == source;
  const auto options = at::TensorOptions(header.dtype).device(device);
  const auto tensor = is_source ? own.detach().to(device).contiguous() : at::empty(header.sizes, options);
  const comm::CalledFor purpose(parallel::kStateExchange);
  if (tensor.numel() > 0) broadcast(tensor, group_rank(source), {.group = group});
  return tensor;
}

// Returns the local tensor, without a gradient.
at::Tensor local_of(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return DTensor(tensor).to_local();
}

// Unites the values of ranks with different keys: all ranks get all of them, in the order of ranks.
ShardedStateDict united(const ShardedStateDict& state, c10::Device device, const Group& group) {
  std::vector<Value> own;
  for (const auto& item : state) own.push_back(header_of(item.key(), item.value()));
  const comm::CalledFor purpose(parallel::kStateExchange);
  const auto all = comm::RankExchange(group).all_values(c10::ivalue::Tuple::create(std::move(own)));
  std::unordered_map<std::string, size_t> num_holders;
  for (const Value& of_rank : all) {
    for (const Value& entry : of_rank.toTupleRef().elements()) ++num_holders[Header(entry).key];
  }
  ShardedStateDict result;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (const Value& entry : all[rank].toTupleRef().elements()) {
      const Header header(entry);
      if (result.contains(header.key)) continue;
      const auto* const value = state.find(header.key);
      const bool is_everywhere = num_holders[header.key] == all.size();
      if (!header.is_tensor || is_everywhere) {
        result.insert(header.key, value ? *value : StateValue(header.plain));
      } else {
        const auto tensor = value ? value->tensor : at::Tensor();
        result.insert(header.key, StateValue(sent(tensor, header, device, static_cast<int>(rank), group)));
      }
    }
  }
  return result;
}

}  // namespace

ModelShards::ModelShards(const torch::nn::Module& model) {
  std::unordered_map<const void*, fsdp::ShardedParameter> sharded;
  for (auto& parameter : fsdp::sharded_parameters(model)) {
    check_place(parameter);
    sharded.emplace(parameter.full.unsafeGetTensorImpl(), std::move(parameter));
  }
  for (const auto& [name, tensor, is_parameter] : tensors_of(model)) {
    HeldTensor held{name, tensor, std::nullopt, tensor.sizes().vec(), is_parameter};
    held.is_frozen = is_parameter && !tensor.requires_grad();
    const auto found = sharded.find(tensor.unsafeGetTensorImpl());
    if (found != sharded.end()) {
      held.tensor = found->second.shard;
      held.spec = found->second.spec;
    } else {
      held.spec = parallel::noted_shard_spec(tensor);
    }
    if (held.spec) held.sizes = held.spec->shape();
    held.other_names = other_names(tensor, name);
    if (held.other_names.empty()) held.other_names = other_names(held.tensor, name);
    if (is_parameter) places_.emplace(held.tensor.unsafeGetTensorImpl(), tensors_.size());
    if (is_dtensor(held.tensor)) held.tensor = local_of(held.tensor);
    names_.insert(name);
    tensors_.push_back(std::move(held));
  }
}

const HeldTensor* ModelShards::find(const at::Tensor& parameter) const {
  const auto found = places_.find(parameter.unsafeGetTensorImpl());
  return found == places_.end() ? nullptr : &tensors_[found->second];
}

const HeldTensor& ModelShards::at(const at::Tensor& parameter, size_t group, size_t place) const {
  const auto* const held = find(parameter);
  TORCH_CHECK_VALUE(held, "[cohort] parameter ", place, " of the optimizer's group ", group,
                    " is not one of the model's\n  hint: pass the model that the optimizer was constructed with; with "
                    "fully_shard both come from the wrapper, which has the parameters in shards");
  return *held;
}

StateValue held_value(const at::Tensor& tensor, const HeldTensor& held) {
  if (is_dtensor(tensor)) return {local_of(tensor), DTensor(tensor).spec()};
  return {tensor, mesh::ShardSpec(held.spec->mesh(), held.spec->placements(), held.sizes, tensor.scalar_type())};
}

at::Tensor local_shard_of(const at::Tensor& full, const mesh::ShardSpec& spec) {
  auto part = full;
  const auto ranges = spec.held_ranges();
  if (ranges.empty()) return full.new_empty({0});
  for (int64_t dim = 0; dim < full.dim(); ++dim) {
    if (ranges[dim].size() == 1 && ranges[dim][0].size() == full.size(dim)) continue;
    part = ranges[dim].empty() ? part.narrow(dim, 0, 0) : mesh::take_ranges(part, dim, ranges[dim]);
  }
  return part;
}

StateValue localized(const std::string& key, const StateValue& value, const Wanted& wanted) {
  if (!value.is_tensor()) return value;
  const bool is_full = !value.is_shard() || value.tensor.sizes() == at::IntArrayRef(value.spec->shape());
  if (is_full) {
    const bool is_sharded = wanted.spec && value.tensor.sizes() == at::IntArrayRef(wanted.sizes);
    return is_sharded ? StateValue(local_shard_of(value.tensor, *wanted.spec), *wanted.spec) : StateValue(value.tensor);
  }
  const bool is_same = wanted.spec && value.spec->shape() == wanted.spec->shape() &&
                       value.spec->held_ranges() == wanted.spec->held_ranges();
  const bool has_other_shape = wanted.spec && value.spec->shape() != wanted.spec->shape();
  TORCH_CHECK_VALUE(
      is_same || has_other_shape, "[cohort] \"", key, "\" of the state dict is a shard of a tensor, ",
      value.spec->to_string(), ", but this rank holds ",
      wanted.spec ? "the shard " + wanted.spec->to_string() : std::string("the full tensor"),
      "\n  hint: fill a state dict of this model with load_sharded(), which reads shards of any mesh, or pass "
      "full tensors");
  return value;
}

Group group_of(const StateDictOptions& options) {
  if (options.process_group) return options.process_group;
  return is_initialized() ? default_group() : Group();
}

ShardedStateDict broadcast_state(const ShardedStateDict& state, const WantedValues& wanted, c10::Device device,
                                 const Group& group) {
  std::vector<Value> headers;
  if (group->getRank() == 0) {
    for (const auto& item : state) headers.push_back(header_of(item.key(), item.value()));
  }
  const comm::CalledFor purpose(parallel::kStateExchange);
  const auto all = comm::RankExchange(group).all_values(c10::ivalue::Tuple::create(std::move(headers)));
  ShardedStateDict result;
  for (const Value& entry : all.front().toTupleRef().elements()) {
    const Header header(entry);
    if (!header.is_tensor) {
      result.insert(header.key, StateValue(header.plain));
      continue;
    }
    const auto* const own = state.find(header.key);
    const auto tensor = sent(own ? own->tensor : at::Tensor(), header, device, 0, group);
    const auto found = wanted.find(header.key);
    if (found == wanted.end()) {
      result.insert(header.key, StateValue(tensor));
    } else if (found->second.is_needed) {
      auto value = localized(header.key, StateValue(tensor), found->second);
      if (value.is_shard()) value.tensor = value.tensor.clone();  // frees the full tensor
      result.insert(header.key, std::move(value));
    }
  }
  return result;
}

ShardedStateDict gathered(ShardedStateDict state, const StateDictOptions& options,
                          std::optional<c10::Device> varies_on) {
  const auto group = options.full_state_dict ? group_of(options) : Group();
  if (group && varies_on) state = united(state, *varies_on, group);
  const bool keeps = !options.full_state_dict || !options.cpu_offload || !group || group->getRank() == 0;
  ShardedStateDict result;
  for (auto& item : state) {
    auto& value = item.value();
    if (value.is_shard() && options.full_state_dict) {
      // With CPUOffloadPolicy, shards are on another device than the mesh's.
      const auto part = dtensor::on_device_of(value.spec->mesh(), value.tensor.detach());
      const comm::CalledFor purpose(parallel::kStateExchange);
      value.tensor = dtensor::gathered(part, *value.spec);
      value.spec.reset();
    }
    if (!keeps) continue;
    if (value.is_tensor() && options.cpu_offload) value.tensor = value.tensor.cpu();
    result.insert(item.key(), std::move(value));
  }
  return result;
}

}  // namespace cohort::checkpoint::detail
