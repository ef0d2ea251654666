#include "cohort/dtensor/dispatch/call.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/WrapDimMinimal.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace cohort::dtensor {

std::string name_of(const c10::OperatorHandle& op) { return toString(op.operator_name()); }

namespace {

const Placement kReplicate{Replicate()};

void check_same_mesh(const c10::OperatorHandle& op, const DeviceMesh& first, const DeviceMesh& other) {
  TORCH_CHECK_VALUE(
      &first == &other || first == other, "[cohort] DTensor: ", name_of(op), " has arguments on different meshes, ",
      first, " and ", other,
      "\n  hint: bring them onto one mesh: distribute_tensor(DTensor(x).full_tensor(), mesh, placements)");
}

}  // namespace

bool is_list_of_optional_tensors(const c10::IValue& value) {
  if (!value.isList()) return false;
  const auto type = value.toList().elementType()->cast<c10::OptionalType>();
  return type && type->getElementType()->kind() == c10::TypeKind::TensorType;
}

Call::Call(const c10::OperatorHandle& op, torch::jit::Stack& stack)
    : op_(op),
      stack_(stack),
      num_arguments_(op.schema().arguments().size()),
      local_(stack.end() - static_cast<std::ptrdiff_t>(num_arguments_), stack.end()) {
  for (size_t i = 0; i < num_arguments_; ++i) {
    const auto& value = argument(i);
    if (value.isTensor()) {
      add_operand(value.toTensor(), i, -1);
    } else if (value.isList()) {
      int64_t item = 0;  // tensors of the list may be undefined
      for (const auto& one : value.toListRef()) {
        if (one.isTensor()) add_operand(one.toTensor(), i, item);
        ++item;
      }
    }
  }
  check_operands();
}

void Call::add_operand(const at::Tensor& tensor, size_t argument, int64_t item) {
  if (!tensor.defined()) return;
  const auto* alias = op_.schema().arguments()[argument].alias_info();
  operands_.push_back({tensor, static_cast<int64_t>(argument), item, alias && alias->isWrite()});
}

void Call::check_operands() {
  for (const auto& operand : operands_) {
    if (!is_dtensor(operand.tensor)) continue;
    const auto& mesh = dtensor_data(operand.tensor).mesh;
    if (mesh_) check_same_mesh(op_, *mesh_, mesh);
    mesh_ = &mesh;
  }
  TORCH_CHECK(mesh_, "[cohort] DTensor: ", name(), " came without a DTensor among its arguments");
  TORCH_CHECK_VALUE(mesh_->coordinate(), "[cohort] DTensor: ", name(), " on a rank that ", *mesh_,
                    " does not have\n  hint: compute only on ranks of the mesh: if (mesh.coordinate()) ...");
  const bool records = at::GradMode::is_enabled();
  for (const auto& operand : operands_) {
    if (is_dtensor(operand.tensor)) continue;
    TORCH_CHECK_NOT_IMPLEMENTED(
        !operand.is_written, "[cohort] DTensor: ", name(), " would write a DTensor's values into argument ",
        operand.argument, ", a plain tensor of shape ", operand.sizes(),
        "\n  hint: gather it first with x.copy_(DTensor(y).full_tensor()); a gradient is plain here and a DTensor "
        "there if its parameter was distributed after the first backward: clear gradients with zero_grad() in between");
    TORCH_CHECK_NOT_IMPLEMENTED(!records || !operand.tensor.requires_grad(), "[cohort] DTensor: argument ",
                                operand.argument, " of ", name(), ", of shape ", operand.sizes(),
                                ", is a plain tensor that requires a gradient, beside DTensors: its gradient would "
                                "become a DTensor\n  hint: distribute it as well: cohort::distribute_module(module, "
                                "mesh) makes every parameter a "
                                "DTensor (also after torch::load, which puts plain ones in), DTensor::from_local(x, "
                                "mesh, {Replicate()}) an input");
  }
}

int64_t Call::operand_of(int64_t argument) const {
  for (size_t i = 0; i < operands_.size(); ++i) {
    if (operands_[i].argument == argument) return static_cast<int64_t>(i);
  }
  return -1;
}

const Placement& Call::placement(size_t index, int64_t axis) const {
  const auto& tensor = operands_[index].tensor;
  return is_dtensor(tensor) ? dtensor_data(tensor).placements[axis] : kReplicate;
}

int64_t Call::dim_argument(size_t index, int64_t ndim) const {
  return c10::maybe_wrap_dim(argument(index).toInt(), ndim);
}

std::vector<bool> Call::dims_argument(size_t index, int64_t ndim) const {
  const auto& value = argument(index);
  std::vector<int64_t> dims;
  if (value.isInt()) dims.push_back(value.toInt());
  if (value.isIntList()) dims = value.toIntVector();
  std::vector<bool> flags(ndim, dims.empty());
  for (const int64_t dim : dims) {
    if (ndim > 0) flags[c10::maybe_wrap_dim(dim, ndim)] = true;
  }
  return flags;
}

// Copies a list first, so that the caller's list does not change.
void Call::set_local(size_t operand, at::Tensor part) {
  const auto& of = operands_[operand];
  auto& value = local_[of.argument];
  if (of.item < 0) {
    value = std::move(part);
    return;
  }
  const bool is_own = std::find(own_lists_.begin(), own_lists_.end(), of.argument) != own_lists_.end();
  if (!is_own) own_lists_.push_back(of.argument);
  if (value.isTensorList()) {
    if (!is_own) value = value.toTensorList().copy();
    value.toTensorList().set(of.item, std::move(part));
  } else {
    if (!is_own) value = value.toList().copy();
    value.toList().set(of.item, std::move(part));
  }
}

at::Tensor Call::run_with(int64_t index, at::Tensor value) const {
  auto arguments = local_;
  arguments[index] = std::move(value);
  op_.callBoxed(arguments);
  return arguments.front().toTensor();
}

void Call::commit() {
  torch::jit::drop(stack_, num_arguments_);
  for (auto& result : local_) stack_.push_back(std::move(result));
}

}  // namespace cohort::dtensor
