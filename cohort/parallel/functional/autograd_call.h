/// The state that a differentiable collective keeps for its backward.
#pragma once

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "cohort/comm/collectives/arguments.h"
#include "cohort/comm/collectives/collectives.h"

namespace cohort::functional {

struct AutogradCall : torch::CustomClassHolder {
  Group group;
  ReduceOp op = ReduceOp::SUM;
  int root = 0;  ///< group rank
  std::vector<int64_t> output_splits;
  std::vector<int64_t> input_splits;
  std::vector<std::vector<int64_t>> input_shapes;  ///< all_to_all
};

using AutogradCallPtr = c10::intrusive_ptr<AutogradCall>;

/// Requires that this rank is a member of `group`: otherwise throws c10::ValueError.
inline AutogradCallPtr make_call(const Group& group, const ReduceOp& op = ReduceOp::SUM) {
  TORCH_CHECK_VALUE(is_member(group), "Invalid process group specified");
  auto call = c10::make_intrusive<AutogradCall>();
  call->group = comm::resolve(group);
  call->op = op;
  return call;
}

inline void keep(torch::autograd::AutogradContext* context, const AutogradCallPtr& call) {
  context->saved_data["call"] = c10::IValue::make_capsule(call);
}

inline AutogradCallPtr kept(torch::autograd::AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<AutogradCall>(context->saved_data["call"].toCapsule());
}

/// Passes a list to Function::apply, which looks for tensors only in this type, not in a vector.
inline at::TensorList as_variables(const TensorList& tensors) { return tensors; }

inline TensorList contiguous(at::TensorList tensors) {
  TensorList result;
  result.reserve(tensors.size());
  for (const auto& tensor : tensors) result.push_back(tensor.contiguous());
  return result;
}

/// Returns the result of backward: an undefined tensor for the call, then the gradients of the tensors.
inline TensorList gradients(TensorList of_tensors) {
  of_tensors.insert(of_tensors.begin(), at::Tensor());
  return of_tensors;
}

}  // namespace cohort::functional
