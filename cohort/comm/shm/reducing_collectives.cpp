// Collectives that reduce.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/headeronly/version.h>

#include "cohort/comm/shm/element_types.h"
#include "cohort/comm/shm/shm_backend.h"
#include "cohort/comm/shm/shm_checks.h"
#include "cohort/comm/shm/simple_pair.h"
#include "cohort/comm/shm/sparse_reduction.h"
#include "cohort/comm/tensors/overlap.h"
#include "cohort/comm/tensors/tensor_checks.h"

namespace cohort::comm {
namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;

constexpr ShmOperation kAllReduce{"all_reduce", "shm:all_reduce", OpType::ALLREDUCE};
constexpr ShmOperation kAllReduceCoalesced{"all_reduce_coalesced", "shm:all_reduce", OpType::ALLREDUCE_COALESCED};
constexpr ShmOperation kAllReduceSparse{"all_reduce_sparse", "shm:sparse_all_reduce", OpType::_ALLREDUCE_SPARSE};
constexpr ShmOperation kReduceToRoot{"reduce", "shm:reduce", OpType::REDUCE};
constexpr ShmOperation kReduceScatter{"reduce_scatter", "shm:reduce_scatter", OpType::REDUCE_SCATTER, false, false};
constexpr ShmOperation kReduceScatterSingle{"reduce_scatter_single", "shm:reduce_scatter",
                                            OpType::_REDUCE_SCATTER_BASE};
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 12
constexpr auto kTensorCoalesced = OpType::_REDUCE_SCATTER_BASE;  // this release has no name for it
#else
constexpr auto kTensorCoalesced = OpType::REDUCE_SCATTER_TENSOR_COALESCED;
#endif
constexpr ShmOperation kReduceScatterTensorCoalesced{"reduce_scatter_tensor_coalesced", "shm:reduce_scatter",
                                                     kTensorCoalesced};

// A user's tensor and the plain tensor that the engine works on: the same one if possible.
struct CarriedTensor {
  at::Tensor user;
  at::Tensor memory;

  void bring_back() const {
    if (memory.is_same(user)) return;
    const at::NoGradGuard no_grad;
    at::Tensor(user).copy_(memory.view(user.sizes()));
  }
};

at::Tensor reduced_as(const at::Tensor& tensor, bool apart = false) {
  const at::NoGradGuard no_grad;
  const auto plain = is_plain(tensor) && !apart ? tensor : plain_copy(tensor);
  return is_reduced_as_float(tensor.scalar_type()) ? plain.to(at::kFloat) : plain;
}

// `apart`: must not be the user's memory, see overlap.h.
CarriedTensor carry(const at::Tensor& user, bool apart = false) { return {user, reduced_as(user, apart)}; }

// For an output: the content of `user` does not matter.
CarriedTensor carry_output(const at::Tensor& user, bool apart) {
  const bool as_float = is_reduced_as_float(user.scalar_type());
  if (is_plain(user) && !as_float && !apart) return {user, user};
  return {user, at::empty(user.sizes(), user.options()
                                            .dtype(as_float ? at::kFloat : user.scalar_type())
                                            .memory_format(at::MemoryFormat::Contiguous))};
}

// One reduce_scatter of the engine: a plain tensor in parts, or a list of plain tensors.
struct Scattering {
  Tensors inputs;
  CarriedTensor output;

  std::vector<const void*> parts(int world_size) const {
    std::vector<const void*> pointers;
    if (inputs.size() == static_cast<size_t>(world_size)) {
      for (const auto& input : inputs) pointers.push_back(input.const_data_ptr());
      return pointers;
    }
    const auto* const begin = static_cast<const std::byte*>(inputs[0].const_data_ptr());
    for (int rank = 0; rank < world_size; ++rank) {
      pointers.push_back(begin + static_cast<size_t>(rank) * output.memory.nbytes());
    }
    return pointers;
  }
};

// One reduce_scatter of the engine between the tensors of a simple pair.
struct SimpleScattering {
  SimpleScattering(const at::Tensor& output, const at::Tensor& input, shm::Reduction reduction_to_do, int world_size)
      : parts(input.const_data_ptr(), output.nbytes(), world_size),
        out(output.data_ptr()),
        elements(elements_of(output)),
        reduction(reduction_to_do) {}

  shm::Outcome operator()(shm::Group& group, const shm::CallOptions& options) const {
    return group.reduce_scatter(parts.data(), out, elements, reduction, options);
  }

  EqualParts<const void*> parts;
  void* out;
  shm::Elements elements;
  shm::Reduction reduction;
};

// Whether the engine reduces the tensor without conversion.
bool is_reduced_as_it_is(const at::Tensor& tensor) {
  return is_simple(tensor) && !tensor.is_complex() && !is_reduced_as_float(tensor.scalar_type());
}

}  // namespace

ShmBackend::WorkPtr ShmBackend::reduce_each(const Request& request, const Tensors& tensors, const c10d::ReduceOp& op) {
  const auto reduction = engine_reduction(request.operation.name, op, tensors[0].scalar_type());
  check_can_be_written(request.operation.name, tensors);
  if (tensors.size() == 1 && is_plain(tensors[0]) && !is_reduced_as_float(tensors[0].scalar_type())) {
    return run(request, tensors, tensors, tensors,
               [memory = tensors[0].data_ptr(), elements = elements_of(tensors[0]), reduction](
                   shm::Group& group, const shm::CallOptions& options) {
                 return group.all_reduce(memory, memory, elements, reduction, options);
               });
  }
  std::vector<CarriedTensor> carriers;
  const bool apart = overlap(tensors);
  for (const auto& tensor : tensors) carriers.push_back(carry(tensor, apart));
  return run(request, tensors, tensors, tensors,
             [carriers = std::move(carriers), reduction](shm::Group& group, const shm::CallOptions& options) {
               for (const auto& carrier : carriers) {
                 auto* const memory = carrier.memory.data_ptr();
                 auto failure = group.all_reduce(memory, memory, elements_of(carrier.memory), reduction, options);
                 if (failure) return failure;
               }
               for (const auto& carrier : carriers) carrier.bring_back();
               return shm::Outcome();
             });
}

ShmBackend::WorkPtr ShmBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const Request request{.operation = kAllReduce,
                        .is_async = opts.asyncOp,
                        .timeout = opts.timeout,
                        .reduce_op = opts.reduceOp.op_,
                        .caller = __builtin_return_address(0)};
  if (tensors.size() == 1 && tensors[0].defined() && tensors[0].is_sparse()) {
    return reduce_sparse(request, tensors);
  }
  check_one("all_reduce", tensors);
  return reduce_each(request, tensors, opts.reduceOp);
}

ShmBackend::WorkPtr ShmBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  check_tensors("all_reduce_coalesced", tensors);
  check_dense("all_reduce_coalesced", tensors);
  const Request request{.operation = kAllReduceCoalesced,
                        .is_async = opts.asyncOp,
                        .timeout = opts.timeout,
                        .reduce_op = opts.reduceOp.op_,
                        .caller = __builtin_return_address(0)};
  return reduce_each(request, tensors, opts.reduceOp);
}

ShmBackend::WorkPtr ShmBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  check_tensors("all_reduce_sparse", tensors);
  TORCH_CHECK_VALUE(tensors.size() == 1, "[cohort] all_reduce_sparse takes one tensor, got ", tensors.size());
  const Request request{.operation = kAllReduceSparse,
                        .is_async = opts.asyncOp,
                        .timeout = opts.timeout,
                        .reduce_op = opts.reduceOp.op_,
                        .caller = __builtin_return_address(0)};
  return reduce_sparse(request, tensors);
}

ShmBackend::WorkPtr ShmBackend::reduce_sparse(const Request& request, Tensors& tensors) {
  check_sparse_reduction(request.operation.name, tensors[0], request.reduce_op);
  const bool is_average = request.reduce_op == c10d::ReduceOp::AVG;
  auto input = tensors[0].coalesce();
  return run(
      request, tensors, tensors, tensors,
      [input = std::move(input), output = tensors[0], is_average](shm::Group& group, const shm::CallOptions& options) {
        return sum_sparse(group, options, input, output, is_average);
      });
}

ShmBackend::WorkPtr ShmBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  check_one("reduce", tensors);
  check_root("reduce", opts.rootRank, size_);
  check_can_be_written("reduce", tensors);
  const auto reduction = engine_reduction("reduce", opts.reduceOp, tensors[0].scalar_type());
  const Request request{.operation = kReduceToRoot,
                        .is_async = opts.asyncOp,
                        .timeout = opts.timeout,
                        .root = static_cast<int>(opts.rootRank),
                        .reduce_op = opts.reduceOp.op_,
                        .caller = __builtin_return_address(0)};
  return run(request, tensors, tensors, tensors,
             [carrier = carry(tensors[0]), reduction, root = request.root, is_root = request.root == rank_](
                 shm::Group& group, const shm::CallOptions& options) {
               auto* const memory = carrier.memory.data_ptr();
               auto failure = group.reduce(memory, is_root ? memory : nullptr, elements_of(carrier.memory), reduction,
                                           root, options);
               if (!failure && is_root) carrier.bring_back();
               return failure;
             });
}

// `inputs[i]`: one list per output, in the form of Scattering.
ShmBackend::WorkPtr ShmBackend::scatter_reduced(const Request& request, const c10d::ReduceOp& op,
                                                const Tensors& outputs, const std::vector<Tensors>& inputs) {
  const auto* const name = request.operation.name;
  std::vector<Scattering> scatterings;
  Tensors handed_in;
  const auto reduction = engine_reduction(name, op, outputs[0].scalar_type());
  for (const auto& list : inputs) handed_in.insert(handed_in.end(), list.begin(), list.end());
  check_can_be_written(name, outputs);
  const bool apart = overlap(outputs, handed_in);
  for (size_t i = 0; i < outputs.size(); ++i) {
    scatterings.push_back({{}, carry_output(outputs[i], apart)});
    for (const auto& input : inputs[i]) scatterings.back().inputs.push_back(reduced_as(input));
  }
  return run(request, outputs, handed_in, outputs,
             [scatterings = std::move(scatterings), reduction](shm::Group& group, const shm::CallOptions& options) {
               for (const auto& scattering : scatterings) {
                 const auto& memory = scattering.output.memory;
                 auto failure = group.reduce_scatter(scattering.parts(group.world_size()).data(), memory.data_ptr(),
                                                     elements_of(memory), reduction, options);
                 if (failure) return failure;
               }
               for (const auto& scattering : scatterings) scattering.output.bring_back();
               return shm::Outcome();
             });
}

// All ranks come here, because the list has the same sizes on every rank. Reduces each tensor to the rank that gets it.
ShmBackend::WorkPtr ShmBackend::scatter_uneven(const Request& request, const c10d::ReduceOp& op, const Tensors& outputs,
                                               const Tensors& list) {
  const auto reduction = engine_reduction(request.operation.name, op, outputs[0].scalar_type());
  Tensors parts;
  for (const auto& input : list) parts.push_back(reduced_as(input));
  check_can_be_written(request.operation.name, outputs);
  return run(request, outputs, list, outputs,
             [parts = std::move(parts), output = carry_output(outputs[0], overlap(outputs, list)), reduction,
              own = rank_](shm::Group& group, const shm::CallOptions& options) {
               for (int rank = 0; rank < group.world_size(); ++rank) {
                 const auto& part = parts[static_cast<size_t>(rank)];
                 auto failure = group.reduce(part.const_data_ptr(), rank == own ? output.memory.data_ptr() : nullptr,
                                             elements_of(part), reduction, rank, options);
                 if (failure) return failure;
               }
               output.bring_back();
               return shm::Outcome();
             });
}

ShmBackend::WorkPtr ShmBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                               const c10d::ReduceScatterOptions& opts) {
  check_one("reduce_scatter", outputs);
  const auto sizes = check_list("reduce_scatter", inputs, outputs[0], rank_, size_);
  check_dense("reduce_scatter", inputs[0]);
  const Request request{.operation = kReduceScatter,
                        .is_async = opts.asyncOp,
                        .timeout = opts.timeout,
                        .reduce_op = opts.reduceOp.op_,
                        .caller = __builtin_return_address(0)};
  if (sizes == Sizes::kUneven) return scatter_uneven(request, opts.reduceOp, outputs, inputs[0]);
  return scatter_reduced(request, opts.reduceOp, outputs, inputs);
}

ShmBackend::WorkPtr ShmBackend::scatter_from(const Request& request, const c10d::ReduceOp& op, const Tensors& outputs,
                                             const Tensors& inputs) {
  check_pairs(request.operation.name, inputs, outputs, size_, "input");
  check_dense(request.operation.name, outputs);
  check_dense(request.operation.name, inputs);
  check_tensors(request.operation.name, outputs);
  std::vector<Tensors> lists;
  for (const auto& input : inputs) lists.push_back({input});
  return scatter_reduced(request, op, outputs, lists);
}

ShmBackend::WorkPtr ShmBackend::_reduce_scatter_base(Tensor& output, Tensor& input,
                                                     const c10d::ReduceScatterOptions& opts) {
  const Request request{.operation = kReduceScatterSingle,
                        .is_async = opts.asyncOp,
                        .timeout = opts.timeout,
                        .reduce_op = opts.reduceOp.op_,
                        .caller = __builtin_return_address(0)};
  if (!is_simple_pair(input, output, size_) || is_reduced_as_float(output.scalar_type())) {
    return scatter_from(request, opts.reduceOp, {output}, {input});
  }
  const auto reduction = engine_reduction(request.operation.name, opts.reduceOp, output.scalar_type());
  return run(request, output, input, output,
             [input, scatter = SimpleScattering(output, input, reduction, size_)](
                 shm::Group& group, const shm::CallOptions& options) { return scatter(group, options); });
}

ShmBackend::WorkPtr ShmBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::ReduceScatterOptions& opts) {
  const Request request{.operation = kReduceScatterTensorCoalesced,
                        .is_async = opts.asyncOp,
                        .timeout = opts.timeout,
                        .reduce_op = opts.reduceOp.op_,
                        .caller = __builtin_return_address(0)};
  return scatter_from(request, opts.reduceOp, outputs, inputs);
}

bool ShmBackend::all_reduce_now(const Tensor& tensor, const c10d::ReduceOp& op) {
  if (!is_reduced_as_it_is(tensor)) return false;
  const auto reduction = engine_reduction(kAllReduce.name, op, tensor.scalar_type());
  return run_directly({.operation = kAllReduce, .reduce_op = op.op_}, tensor, tensor,
                      [&](shm::Group& group, const shm::CallOptions& options) {
                        auto* const memory = tensor.data_ptr();
                        return group.all_reduce(memory, memory, elements_of(tensor), reduction, options);
                      });
}

bool ShmBackend::reduce_now(const Tensor& tensor, const c10d::ReduceOp& op, int root) {
  if (!is_reduced_as_it_is(tensor)) return false;
  const auto reduction = engine_reduction(kReduceToRoot.name, op, tensor.scalar_type());
  return run_directly({.operation = kReduceToRoot, .root = root, .reduce_op = op.op_}, tensor, tensor,
                      [&](shm::Group& group, const shm::CallOptions& options) {
                        auto* const memory = tensor.data_ptr();
                        return group.reduce(memory, root == rank_ ? memory : nullptr, elements_of(tensor), reduction,
                                            root, options);
                      });
}

bool ShmBackend::reduce_scatter_now(const Tensor& output, const Tensor& input, const c10d::ReduceOp& op) {
  if (!is_simple_pair(input, output, size_) || !is_reduced_as_it_is(output)) return false;
  const auto reduction = engine_reduction(kReduceScatterSingle.name, op, output.scalar_type());
  return run_directly({.operation = kReduceScatterSingle, .reduce_op = op.op_}, output, input,
                      SimpleScattering(output, input, reduction, size_));
}

}  // namespace cohort::comm
