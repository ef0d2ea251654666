#include "cohort/parallel/functional/functional_collectives.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "cohort/comm/collectives/arguments.h"
#include "cohort/comm/collectives/coalescing.h"
#include "cohort/job/call_site.h"
#include "cohort/parallel/functional/autograd_call.h"

namespace cohort::functional {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;

Group member_group(const Group& group) {
  TORCH_CHECK_VALUE(is_member(group), "Invalid process group specified");
  return comm::resolve(group);
}

// LibTorch's registry keeps the tensor's Work until someone waits.
at::Tensor in_flight(at::Tensor tensor, const WorkPtr& work) {
  if (work) c10d::register_work(tensor, work);
  return tensor;
}

TensorList in_flight(TensorList tensors, const WorkPtr& work) {
  for (const auto& tensor : tensors) in_flight(tensor, work);
  return tensors;
}

TensorList wait_all(TensorList tensors) {
  for (const auto& tensor : tensors) wait_tensor(tensor);
  return tensors;
}

void check_differentiable(const AutogradCallPtr& call, const char* operation) {
  const bool is_linear = call->op == ReduceOp::SUM || call->op == ReduceOp::AVG;
  TORCH_CHECK(is_linear, "[cohort] ", operation, " backward only supports 'sum' and 'avg' reduction");
}

at::Tensor empty_rows(const at::Tensor& like, int64_t rows) {
  auto sizes = like.sizes().vec();
  sizes.at(0) = rows;
  return at::empty(sizes, like.options());
}

// A 0-dimensional tensor has no dimension 0 to gather along; it counts as one row.
at::Tensor with_rows(const at::Tensor& tensor) { return tensor.dim() == 0 ? tensor.view({1}) : tensor; }

int64_t wrapped_dim(const at::Tensor& tensor, int64_t dim, const char* operation) {
  const auto dims = std::max<int64_t>(tensor.dim(), 1);
  TORCH_CHECK_INDEX(dim >= -dims && dim < dims, "[cohort] ", operation, ": dimension ", dim, " of a tensor with ",
                    tensor.dim());
  return dim < 0 ? dim + dims : dim;
}

struct AllReduce : Function<AllReduce> {
  static TensorList forward(AutogradContext* context, const AutogradCallPtr& call, at::TensorList tensors) {
    keep(context, call);
    TensorList outputs;
    for (const auto& tensor : tensors) outputs.push_back(tensor.clone(at::MemoryFormat::Contiguous));
    const ReduceOptions options{call->op, call->group, true};
    if (outputs.size() > 1) return in_flight(outputs, cohort::all_reduce_coalesced(outputs, options));
    return in_flight(outputs, cohort::all_reduce(outputs[0], options));
  }
  static TensorList backward(AutogradContext* context, const TensorList& grads) {
    const auto call = kept(context);
    check_differentiable(call, "all_reduce");
    return gradients(wait_all(apply(call, as_variables(contiguous(grads)))));
  }
};

// Runs the collectives of one kind on all tensors, as one call of the backend if there are several.
template <class Start>
TensorList run_together(const Group& group, const TensorList& outputs, const Start& start) {
  if (outputs.size() == 1) return in_flight(outputs, start(0));
  CoalescingManager together({.group = group, .async_ops = true});
  for (size_t i = 0; i < outputs.size(); ++i) start(i);
  return in_flight(outputs, together.finish());
}

struct ReduceScatter;

struct AllGather : Function<AllGather> {
  static TensorList forward(AutogradContext* context, const AutogradCallPtr& call, at::TensorList tensors) {
    keep(context, call);
    const auto inputs = contiguous(tensors);
    TensorList outputs;
    for (const auto& input : inputs) outputs.push_back(empty_rows(input, input.size(0) * call->group->getSize()));
    return run_together(call->group, outputs, [&](size_t i) {
      return cohort::all_gather_single(outputs[i], inputs[i], {.group = call->group, .async_op = true});
    });
  }
  static TensorList backward(AutogradContext* context, const TensorList& grads);
};

struct ReduceScatter : Function<ReduceScatter> {
  static TensorList forward(AutogradContext* context, const AutogradCallPtr& call, at::TensorList tensors) {
    keep(context, call);
    const auto inputs = contiguous(tensors);
    TensorList outputs;
    for (const auto& input : inputs) outputs.push_back(empty_rows(input, input.size(0) / call->group->getSize()));
    return run_together(call->group, outputs, [&](size_t i) {
      return cohort::reduce_scatter_single(outputs[i], inputs[i], {call->op, call->group, true});
    });
  }
  static TensorList backward(AutogradContext* context, const TensorList& grads) {
    const auto call = kept(context);
    check_differentiable(call, "reduce_scatter_tensor");
    auto gathered = wait_all(AllGather::apply(make_call(call->group), as_variables(contiguous(grads))));
    if (call->op == ReduceOp::AVG) {
      for (auto& grad : gathered) grad = grad / call->group->getSize();
    }
    return gradients(std::move(gathered));
  }
};

TensorList AllGather::backward(AutogradContext* context, const TensorList& grads) {
  return gradients(wait_all(ReduceScatter::apply(kept(context), as_variables(contiguous(grads)))));
}

struct AllToAll : Function<AllToAll> {
  static at::Tensor forward(AutogradContext* context, const AutogradCallPtr& call, const at::Tensor& tensor) {
    keep(context, call);
    const auto input = tensor.contiguous();
    int64_t rows = 0;
    for (const auto size : call->output_splits) rows += size;
    const auto output = empty_rows(input, rows);
    return in_flight(output, cohort::all_to_all_single(output, input, call->output_splits, call->input_splits,
                                                       {.group = call->group, .async_op = true}));
  }
  static TensorList backward(AutogradContext* context, const TensorList& grads) {
    const auto call = kept(context);
    auto reverse = make_call(call->group);
    reverse->output_splits = call->input_splits;
    reverse->input_splits = call->output_splits;
    return gradients({wait_tensor(apply(reverse, grads[0].contiguous()))});
  }
};

// Divides `dim` into one part per rank and concatenates the parts along dimension 0.
at::Tensor scatter_layout(const at::Tensor& tensor, int64_t dim, int64_t size, const std::string& which) {
  const auto full = with_rows(tensor);
  const auto wrapped = wrapped_dim(full, dim, "reduce_scatter_single");
  TORCH_CHECK_VALUE(full.size(wrapped) % size == 0, "input dimension ", wrapped, " (", full.size(wrapped),
                    ") must be a multiple of group_size ", size, which);
  return wrapped == 0 ? full : at::cat(full.chunk(size, wrapped));
}

}  // namespace

at::Tensor wait_tensor(const at::Tensor& tensor) {
  const job::CallSite site(__builtin_return_address(0));
  // Some operations copy into the tensor when they end, which autograd must not see.
  const at::AutoDispatchBelowADInplaceOrView guard;
  return c10d::wait_tensor(tensor);
}

at::Tensor broadcast(const at::Tensor& tensor, int src, const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  const auto owner = member_group(group);
  const auto output = tensor.detach().clone(at::MemoryFormat::Contiguous);
  return in_flight(output, cohort::broadcast(output, group_rank(src), {.group = owner, .async_op = true}));
}

at::Tensor all_reduce(const at::Tensor& tensor, const ReduceOp& op, const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  return AllReduce::apply(make_call(group, op), as_variables({tensor}))[0];
}

at::Tensor all_gather_single(const at::Tensor& tensor, int64_t gather_dim, const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  const auto call = make_call(group);
  const auto dim = wrapped_dim(tensor, gather_dim, "all_gather_single");
  auto gathered = AllGather::apply(call, as_variables({with_rows(tensor)}))[0];
  if (dim == 0) return gathered;
  return at::cat(wait_tensor(gathered).chunk(call->group->getSize(), 0), dim);
}

at::Tensor reduce_scatter_single(const at::Tensor& tensor, const ReduceOp& op, int64_t scatter_dim,
                                 const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  const auto call = make_call(group, op);
  return ReduceScatter::apply(call, as_variables({scatter_layout(tensor, scatter_dim, call->group->getSize(), "")}))[0];
}

at::Tensor all_to_all_single(const at::Tensor& tensor, const std::optional<std::vector<int64_t>>& output_split_sizes,
                             const std::optional<std::vector<int64_t>>& input_split_sizes, const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  TORCH_CHECK_VALUE(output_split_sizes.has_value() == input_split_sizes.has_value(),
                    "output_split_sizes and input_split_sizes must either be specified together or both left out");
  TORCH_CHECK_VALUE(tensor.dim() > 0, "[cohort] all_to_all_single needs a tensor with a dimension 0 to split");
  const auto call = make_call(group);
  const auto size = call->group->getSize();
  TORCH_CHECK_VALUE(output_split_sizes || tensor.size(0) % size == 0, "[cohort] all_to_all_single: dim 0 is ",
                    tensor.size(0), ", which does not divide equally among ", size, " ranks; give split sizes");
  const std::vector<int64_t> equal(size, tensor.size(0) / size);
  call->output_splits = output_split_sizes.value_or(equal);
  call->input_splits = input_split_sizes.value_or(equal);
  return AllToAll::apply(call, tensor);
}

at::Tensor permute_tensor(const at::Tensor& tensor, const std::vector<int64_t>& src_dst, const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  const auto owner = member_group(group);
  const int size = owner->getSize();
  TORCH_CHECK_VALUE(src_dst.size() == static_cast<size_t>(size),
                    "[cohort] permute_tensor needs one destination per rank, ", size, ", got ", src_dst.size());
  TORCH_CHECK_VALUE(tensor.dim() == 1, "[cohort] permute_tensor needs a one-dimensional tensor, got ", tensor.dim(),
                    " dimensions");
  std::vector<int64_t> output_splits(size, 0);
  std::vector<int64_t> input_splits(size, 0);
  for (int src = 0; src < size; ++src) {
    TORCH_CHECK_VALUE(src_dst[src] >= 0 && src_dst[src] < size, "[cohort] permute_tensor: destination ", src_dst[src],
                      " of rank ", src, " is out of range. Valid ranks are 0 to ", size - 1);
    if (src == owner->getRank()) input_splits[src_dst[src]] = tensor.numel();
    if (src_dst[src] == owner->getRank()) output_splits[src] = tensor.numel();
  }
  return all_to_all_single(tensor, output_splits, input_splits, owner);
}

TensorList all_reduce_coalesced(const TensorList& tensors, const ReduceOp& op, const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  TORCH_CHECK_VALUE(!tensors.empty(), "[cohort] all_reduce_coalesced needs at least one tensor");
  return AllReduce::apply(make_call(group, op), as_variables(tensors));
}

TensorList all_gather_single_coalesced(const TensorList& tensors, const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  TORCH_CHECK_VALUE(!tensors.empty(), "[cohort] all_gather_single_coalesced needs at least one tensor");
  TensorList inputs;
  for (const auto& tensor : tensors) inputs.push_back(with_rows(tensor));
  return AllGather::apply(make_call(group), as_variables(inputs));
}

TensorList reduce_scatter_single_coalesced(const TensorList& tensors, const ReduceOp& op,
                                           const std::vector<int64_t>& scatter_dims, const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  TORCH_CHECK_VALUE(!tensors.empty(), "[cohort] reduce_scatter_single_coalesced needs at least one tensor");
  TORCH_CHECK_VALUE(scatter_dims.size() == tensors.size(), "Length of scatter_dim (", scatter_dims.size(),
                    ") must equal length of inputs (", tensors.size(), ")");
  const auto call = make_call(group, op);
  TensorList inputs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    inputs.push_back(scatter_layout(tensors[i], scatter_dims[i], call->group->getSize(),
                                    " for tensor at index " + std::to_string(i)));
  }
  return ReduceScatter::apply(call, as_variables(inputs));
}

at::Tensor all_gather_tensor(const at::Tensor& tensor, int64_t gather_dim, const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  return all_gather_single(tensor, gather_dim, group);
}

at::Tensor reduce_scatter_tensor(const at::Tensor& tensor, const ReduceOp& op, int64_t scatter_dim,
                                 const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  return reduce_scatter_single(tensor, op, scatter_dim, group);
}

TensorList all_gather_into_tensor_coalesced(const TensorList& tensors, const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  return all_gather_single_coalesced(tensors, group);
}

TensorList reduce_scatter_tensor_coalesced(const TensorList& tensors, const ReduceOp& op,
                                           const std::vector<int64_t>& scatter_dims, const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  return reduce_scatter_single_coalesced(tensors, op, scatter_dims, group);
}

at::Tensor all_gather_single_autograd(const at::Tensor& tensor, int64_t gather_dim, const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  return all_gather_single(tensor, gather_dim, group);
}

at::Tensor reduce_scatter_single_autograd(const at::Tensor& tensor, const ReduceOp& op, int64_t scatter_dim,
                                          const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  return reduce_scatter_single(tensor, op, scatter_dim, group);
}

at::Tensor all_to_all_single_autograd(const at::Tensor& tensor,
                                      const std::optional<std::vector<int64_t>>& output_split_sizes,
                                      const std::optional<std::vector<int64_t>>& input_split_sizes,
                                      const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  return all_to_all_single(tensor, output_split_sizes, input_split_sizes, group);
}

}  // namespace cohort::functional
