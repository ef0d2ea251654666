#include "cohort/parallel/functional/functional.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>

#include "cohort/comm/collectives/arguments.h"
#include "cohort/comm/registry/backends.h"
#include "cohort/parallel/functional/autograd_call.h"

// Each backward consists of forwards of other collectives, so higher derivatives work. Where PyTorch composes a collective of
// others, for Gloo, the same is done here: C++ and Python ranks can share one group, and sums are bitwise equal.
namespace cohort::nn::functional {
namespace {

using cohort::functional::as_variables;
using cohort::functional::AutogradCallPtr;
using cohort::functional::contiguous;
using cohort::functional::gradients;
using cohort::functional::keep;
using cohort::functional::kept;
using cohort::functional::make_call;
using torch::autograd::AutogradContext;
using torch::autograd::Function;

AutogradCallPtr make_rooted_call(const Group& group, RankArgument root, const ReduceOp& op = ReduceOp::SUM) {
  auto call = make_call(group, op);
  call->root = comm::to_group_rank(group, root);
  return call;
}

AutogradCallPtr sum_of(const AutogradCallPtr& call) {
  auto result = make_call(call->group);
  result->root = call->root;
  return result;
}

bool is_root(const AutogradCallPtr& call) { return call->group->getRank() == call->root; }

const comm::BackendCapability& capability_for(const AutogradCallPtr& call, const at::Tensor& tensor) {
  return comm::capability_of(*comm::backend_for(call->group, tensor, "nn::functional"));
}

void check_one_per_rank(const TensorList& tensors, const Group& group, const char* operation) {
  const auto size = static_cast<size_t>(comm::resolve(group)->getSize());
  TORCH_CHECK_VALUE(tensors.size() == size, "[cohort] ", operation, " needs one tensor per rank, ", size, ", got ",
                    tensors.size());
}

struct Reduce : Function<Reduce> {
  static at::Tensor forward(AutogradContext* context, const AutogradCallPtr& call, const at::Tensor& tensor) {
    keep(context, call);
    const auto output = tensor.clone();
    cohort::reduce(output, group_rank(call->root), {call->op, call->group});
    return output;
  }
  static TensorList backward(AutogradContext* context, const TensorList& grads);
};

struct Broadcast : Function<Broadcast> {
  static at::Tensor forward(AutogradContext* context, const AutogradCallPtr& call, const at::Tensor& tensor) {
    keep(context, call);
    const auto output = tensor.clone();
    cohort::broadcast(output, group_rank(call->root), {.group = call->group});
    return output;
  }
  static TensorList backward(AutogradContext* context, const TensorList& grads) {
    const auto call = kept(context);
    auto sum = Reduce::apply(sum_of(call), grads[0]);
    // Zeroes in place, so that a second backward still passes through Reduce on every rank.
    if (!is_root(call)) sum.zero_();
    return gradients({sum});
  }
};

TensorList Reduce::backward(AutogradContext* context, const TensorList& grads) {
  return gradients({Broadcast::apply(kept(context), grads[0])});
}

struct Scatter : Function<Scatter> {
  static at::Tensor forward(AutogradContext* context, const AutogradCallPtr& call, at::TensorList tensors) {
    keep(context, call);
    const auto output = at::zeros_like(tensors[0]);
    cohort::scatter(output, is_root(call) ? tensors.vec() : TensorList(), group_rank(call->root),
                    {.group = call->group});
    return output;
  }
  static TensorList backward(AutogradContext* context, const TensorList& grads);
};

struct Gather : Function<Gather> {
  static TensorList forward(AutogradContext* context, const AutogradCallPtr& call, const at::Tensor& tensor) {
    keep(context, call);
    TensorList outputs;
    for (int r = 0; r < call->group->getSize(); ++r) outputs.push_back(at::zeros_like(tensor));
    cohort::gather(tensor.contiguous(), is_root(call) ? outputs : TensorList(), group_rank(call->root),
                   {.group = call->group});
    return outputs;
  }
  static TensorList backward(AutogradContext* context, const TensorList& grads) {
    return gradients({Scatter::apply(kept(context), as_variables(grads))});
  }
};

TensorList Scatter::backward(AutogradContext* context, const TensorList& grads) {
  return gradients(Gather::apply(kept(context), grads[0]));
}

struct AllToAll : Function<AllToAll> {
  static TensorList forward(AutogradContext* context, const AutogradCallPtr& call, at::TensorList targets,
                            at::TensorList tensors) {
    keep(context, call);
    call->input_shapes.clear();
    for (const auto& tensor : tensors) call->input_shapes.push_back(tensor.sizes().vec());
    const auto inputs = contiguous(tensors);
    const auto outputs = targets.vec();
    if (!capability_for(call, inputs[0]).scatters_all_to_all) {
      cohort::all_to_all(outputs, inputs, {.group = call->group});
      return outputs;
    }
    for (int r = 0; r < call->group->getSize(); ++r) {
      cohort::scatter(outputs[r], r == call->group->getRank() ? inputs : TensorList(), group_rank(r),
                      {.group = call->group});
    }
    return outputs;
  }
  static TensorList backward(AutogradContext* context, const TensorList& grads) {
    const auto call = kept(context);
    TensorList sent;
    for (const auto& shape : call->input_shapes) sent.push_back(at::empty(shape, grads[0].options()));
    TensorList result(sent.size());  // undefined for the outputs
    const auto returned = apply(sum_of(call), as_variables(sent), as_variables(grads));
    result.insert(result.end(), returned.begin(), returned.end());
    return gradients(std::move(result));
  }
};

struct AllGather;

struct ReduceScatter : Function<ReduceScatter> {
  static at::Tensor forward(AutogradContext* context, const AutogradCallPtr& call, const at::Tensor& output,
                            at::TensorList inputs) {
    keep(context, call);
    const auto target = output.contiguous();
    cohort::reduce_scatter(target, contiguous(inputs), {call->op, call->group});
    return target;
  }
  static TensorList backward(AutogradContext* context, const TensorList& grads);
};

struct AllGather : Function<AllGather> {
  static TensorList forward(AutogradContext* context, const AutogradCallPtr& call, const at::Tensor& tensor) {
    keep(context, call);
    const auto input = tensor.contiguous();
    TensorList outputs;
    for (int r = 0; r < call->group->getSize(); ++r) outputs.push_back(at::empty_like(input));
    cohort::all_gather(outputs, input, {.group = call->group});
    return outputs;
  }
  static TensorList backward(AutogradContext* context, const TensorList& grads) {
    const auto call = kept(context);
    TensorList parts;
    for (const auto& grad : grads) parts.push_back(at::empty_like(grad));
    // By PyTorch's rule, because other ranks of the group may run PyTorch.
    if (capability_for(call, grads[0]).reduces_gathered) {
      return gradients({ReduceScatter::apply(sum_of(call), parts[call->group->getRank()], as_variables(grads))});
    }
    return gradients({at::sum(at::stack(AllToAll::apply(sum_of(call), as_variables(parts), as_variables(grads))), 0)});
  }
};

TensorList ReduceScatter::backward(AutogradContext* context, const TensorList& grads) {
  auto of_inputs = AllGather::apply(kept(context), grads[0]);
  of_inputs.insert(of_inputs.begin(), at::Tensor());  // the output
  return gradients(std::move(of_inputs));
}

struct ReduceScatterBase;

struct AllGatherBase : Function<AllGatherBase> {
  static at::Tensor forward(AutogradContext* context, const AutogradCallPtr& call, const at::Tensor& output,
                            const at::Tensor& input) {
    keep(context, call);
    cohort::all_gather_single(output, input.contiguous(), {.group = call->group});
    return output;
  }
  static TensorList backward(AutogradContext* context, const TensorList& grads);
};

struct ReduceScatterBase : Function<ReduceScatterBase> {
  static at::Tensor forward(AutogradContext* context, const AutogradCallPtr& call, const at::Tensor& tensor) {
    keep(context, call);
    const auto size = call->group->getSize();
    auto sizes = tensor.sizes().vec();
    TORCH_CHECK(!sizes.empty() && sizes[0] % size == 0, "Tensor with dimensions: ", tensor.sizes(),
                " does not have first dimension divisible by world_size: ", size);
    sizes[0] /= size;
    const auto output = at::empty(sizes, tensor.options());
    cohort::reduce_scatter_single(output, tensor.contiguous(), {ReduceOp::SUM, call->group});
    return output;
  }
  static TensorList backward(AutogradContext* context, const TensorList& grads) {
    const auto call = kept(context);
    auto sizes = grads[0].sizes().vec();
    sizes[0] *= call->group->getSize();
    return gradients({AllGatherBase::apply(call, at::empty(sizes, grads[0].options()), grads[0])});
  }
};

TensorList AllGatherBase::backward(AutogradContext* context, const TensorList& grads) {
  return gradients({at::Tensor(), ReduceScatterBase::apply(kept(context), grads[0])});
}

struct AllToAllSingle : Function<AllToAllSingle> {
  static at::Tensor forward(AutogradContext* context, const AutogradCallPtr& call, const at::Tensor& output,
                            const at::Tensor& input) {
    keep(context, call);
    context->saved_data["sizes"] = input.sizes().vec();
    cohort::all_to_all_single(output, input, call->output_splits, call->input_splits, {.group = call->group});
    return output;
  }
  static TensorList backward(AutogradContext* context, const TensorList& grads) {
    const auto call = kept(context);
    auto reverse = sum_of(call);
    reverse->output_splits = call->input_splits;
    reverse->input_splits = call->output_splits;
    const auto received = at::empty(context->saved_data["sizes"].toIntVector(), grads[0].options());
    return gradients({at::Tensor(), apply(reverse, received, grads[0].contiguous())});
  }
};

struct AllReduce : Function<AllReduce> {
  static at::Tensor forward(AutogradContext* context, const AutogradCallPtr& call, const at::Tensor& tensor) {
    keep(context, call);
    const auto output = tensor.clone(at::MemoryFormat::Contiguous);
    cohort::all_reduce(output, {call->op, call->group});
    return output;
  }
  static TensorList backward(AutogradContext* context, const TensorList& grads) {
    return gradients({apply(kept(context), grads[0])});
  }
};

}  // namespace

at::Tensor broadcast(const at::Tensor& tensor, RankArgument src, const Group& group) {
  return Broadcast::apply(make_rooted_call(group, src), tensor);
}

TensorList gather(const at::Tensor& tensor, RankArgument dst, const Group& group) {
  return Gather::apply(make_rooted_call(group, dst), tensor);
}

at::Tensor scatter(const TensorList& tensors, RankArgument src, const Group& group) {
  const auto call = make_rooted_call(group, src);
  check_one_per_rank(tensors, group, "scatter");
  for (const auto& tensor : tensors) {
    TORCH_CHECK_VALUE(tensor.sizes() == tensors[0].sizes(), "[cohort] scatter needs tensors of one shape, got ",
                      tensors[0].sizes(), " and ", tensor.sizes());
  }
  return Scatter::apply(call, as_variables(tensors));
}

at::Tensor reduce(const at::Tensor& tensor, RankArgument dst, const ReduceOp& op, const Group& group) {
  return Reduce::apply(make_rooted_call(group, dst, op), tensor);
}

at::Tensor reduce_scatter(const at::Tensor& output, const TensorList& inputs, const ReduceOp& op, const Group& group) {
  return ReduceScatter::apply(make_call(group, op), output, as_variables(inputs));
}

TensorList all_gather(const at::Tensor& tensor, const Group& group) {
  return AllGather::apply(make_call(group), tensor);
}

at::Tensor _all_gather_base(const at::Tensor& output, const at::Tensor& input, const Group& group) {
  return AllGatherBase::apply(make_call(group), output, input);
}

TensorList all_to_all(const TensorList& outputs, const TensorList& inputs, const Group& group) {
  const auto call = make_call(group);
  check_one_per_rank(outputs, group, "all_to_all");
  check_one_per_rank(inputs, group, "all_to_all");
  return AllToAll::apply(call, as_variables(outputs), as_variables(inputs));
}

at::Tensor all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                             const std::vector<int64_t>& output_split_sizes,
                             const std::vector<int64_t>& input_split_sizes, const Group& group) {
  auto call = make_call(group);
  call->output_splits = output_split_sizes;
  call->input_splits = input_split_sizes;
  return AllToAllSingle::apply(call, output, input);
}

at::Tensor all_reduce(const at::Tensor& tensor, const ReduceOp& op, const Group& group) {
  return AllReduce::apply(make_call(group, op), tensor);
}

}  // namespace cohort::nn::functional
