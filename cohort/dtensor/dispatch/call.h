/// Call: one call of an operation of LibTorch with DTensors among its arguments, while the ranks plan and run it.
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

/// A tensor among the arguments. Each tensor of a list is an operand.
struct Operand {
  const at::Tensor& tensor;  ///< the caller's: a wrapper, or a plain tensor, which is the same on all ranks
  int64_t argument;          ///< the argument's number
  int64_t item;              ///< the index in a list; -1 if the argument is not a list
  bool is_written;           ///< whether the operation writes it in place

  c10::IntArrayRef sizes() const { return tensor.sizes(); }
  int64_t dim() const { return tensor.dim(); }
};

class Call {
 public:
  /// Throws c10::NotImplementedError or c10::ValueError for calls that no rule can serve: DTensors of several meshes, a plain
  /// tensor that is to be written or requires a gradient, a rank outside of the mesh.
  Call(const c10::OperatorHandle& op, torch::jit::Stack& stack);

  const c10::OperatorHandle& op() const { return op_; }
  std::string name() const { return toString(op_.operator_name()); }
  const DeviceMesh& mesh() const { return *mesh_; }

  size_t num_arguments() const { return num_arguments_; }
  /// Returns an argument as the caller passed it.
  const c10::IValue& argument(size_t index) const { return stack_[stack_.size() - num_arguments_ + index]; }
  /// Returns the defined tensors among the arguments.
  const c10::SmallVector<Operand, 6>& operands() const { return operands_; }
  const Operand& operand(size_t index) const { return operands_[index]; }
  /// Returns the number of the operand that is `argument`, or -1.
  int64_t operand_of(int64_t argument) const;
  /// Returns the placement of operand `index` on an axis.
  const Placement& placement(size_t index, int64_t axis) const;

  /// Returns argument `index`, a dim of a tensor with `ndim` dimensions, counted from the front.
  int64_t dim_argument(size_t index, int64_t ndim) const;
  /// Returns a flag for each of `ndim` dimensions from argument `index`, a list of dims. Absent or empty means all dims.
  std::vector<bool> dims_argument(size_t index, int64_t ndim) const;

  /// Returns an argument of the local operation: first the caller's, later the operand's local tensor. After run() only the
  /// results exist.
  c10::IValue& local(size_t index) { return local_[index]; }
  const at::Tensor& local_tensor(size_t index) const { return local_[index].toTensor(); }
  void set_local(size_t operand, at::Tensor part);
  /// Runs the operation on the local tensors.
  void run() { op_.callBoxed(local_); }
  /// Runs the operation with `value` for argument `index`, and returns the first result. Changes nothing here.
  at::Tensor run_with(int64_t index, at::Tensor value) const;
  /// Sets the results, instead of run().
  void finish(std::vector<c10::IValue> results) { local_ = std::move(results); }
  size_t num_results() const { return op_.schema().returns().size(); }
  c10::IValue& result(size_t index) { return local_[index]; }
  /// Returns the results to the caller.
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

/// Whether the value is a list such as the indices of aten::index.Tensor.
bool is_list_of_optional_tensors(const c10::IValue& value);
/// Returns the operation's name for messages: "aten::mm".
std::string name_of(const c10::OperatorHandle& op);

}  // namespace cohort::dtensor
