/// One call of an operation of LibTorch with DTensors among its arguments, while it is decided how the ranks do it together.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/dtensor/wrapper/wrapper.h"

namespace cohort::dtensor {

/// A tensor among the arguments; the tensors of a list are operands one by one.
struct Operand {
  const at::Tensor& tensor;  ///< the caller's: a wrapper, or a plain tensor, which all ranks have alike
  int64_t argument;          ///< its number
  int64_t item;              ///< its place in a list; -1: no list
  bool is_written;           ///< by the operation, in place

  c10::IntArrayRef sizes() const { return tensor.sizes(); }
  int64_t dim() const { return tensor.dim(); }
};

class Call {
 public:
  /// Throws c10::NotImplementedError or c10::ValueError for what no rule can do: DTensors of several meshes, a plain tensor that
  /// is to be written or requires a gradient, a rank outside the mesh.
  Call(const c10::OperatorHandle& op, torch::jit::Stack& stack);

  const c10::OperatorHandle& op() const { return op_; }
  std::string name() const { return toString(op_.operator_name()); }
  const DeviceMesh& mesh() const { return *mesh_; }

  size_t num_arguments() const { return num_arguments_; }
  /// As the caller gave it.
  const c10::IValue& argument(size_t index) const { return stack_[stack_.size() - num_arguments_ + index]; }
  /// Of the arguments' tensors only those that are defined.
  const c10::SmallVector<Operand, 6>& operands() const { return operands_; }
  const Operand& operand(size_t index) const { return operands_[index]; }
  /// The number of the operand that is `argument`; -1: none is there.
  int64_t operand_of(int64_t argument) const;
  /// How operand `index` lies on an axis.
  const Placement& placement(size_t index, int64_t axis) const;

  /// Argument `index`, a dim of a tensor with `ndim` dimensions, counted from the front.
  int64_t dim_argument(size_t index, int64_t ndim) const;
  /// Argument `index`, a list of dims, absent or empty: all of them; a flag for each of `ndim` dimensions.
  std::vector<bool> dims_argument(size_t index, int64_t ndim) const;

  /// What the operation on the parts is given: at first the arguments, then with the operands' parts in their places. Once it
  /// has run, there are the results only.
  c10::IValue& local(size_t index) { return local_[index]; }
  const at::Tensor& local_tensor(size_t index) const { return local_[index].toTensor(); }
  void set_local(size_t operand, at::Tensor part);
  /// Runs the operation on the parts.
  void run() { op_.callBoxed(local_); }
  /// With `value` in the place of argument `index`: the first result. Nothing changes here.
  at::Tensor run_with(int64_t index, at::Tensor value) const;
  /// Instead of it: its results.
  void finish(std::vector<c10::IValue> results) { local_ = std::move(results); }
  size_t num_results() const { return op_.schema().returns().size(); }
  c10::IValue& result(size_t index) { return local_[index]; }
  /// Gives the results to the caller.
  void commit();

 private:
  void add_operand(const at::Tensor& tensor, size_t argument, int64_t item);
  void check_operands();

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  size_t num_arguments_;
  torch::jit::Stack local_;
  c10::SmallVector<Operand, 6> operands_;
  c10::SmallVector<int64_t, 2> own_lists_;  // arguments whose lists in local_ are copies
  const DeviceMesh* mesh_ = nullptr;
};

/// Such as the indices of aten::index.Tensor.
bool is_list_of_optional_tensors(const c10::IValue& value);
/// For messages: "aten::mm".
std::string name_of(const c10::OperatorHandle& op);

}  // namespace cohort::dtensor
