// Collectives that reduce.
#include <ATen/ATen.h>

#include "cohort/comm/backend/joined_work.h"
#include "cohort/comm/gloo/gloo_backend.h"
#include "cohort/comm/tensors/overlap.h"

namespace cohort::comm {
namespace {

using Tensors = std::vector<at::Tensor>;

template <class EngineOptions>
EngineOptions with_op(EngineOptions options, const Reduction& reduction) {
  options.reduceOp = reduction.engine_op();
  return options;
}

// Encodes each tensor. Overlapping tensors get separate carriers, so that each is the reduction of its old content.
std::vector<Carrier> encode(const Reduction& reduction, const Tensors& tensors) {
  const bool apart = tensors.size() > 1 && overlap(tensors);
  std::vector<Carrier> carriers;
  carriers.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    carriers.push_back(reduction.encode(apart ? plain_copy(tensor) : tensor, /*may_overwrite=*/true));
    if (apart) carriers.back().is_copy = true;
  }
  return carriers;
}

Tensors tensors_of(const std::vector<Carrier>& carriers) {
  Tensors tensors;
  tensors.reserve(carriers.size());
  for (const auto& carrier : carriers) tensors.push_back(carrier.tensor);
  return tensors;
}

void divide_values(const Tensors& sparse, int world_size) {
  const at::NoGradGuard no_grad;
  for (const auto& tensor : sparse) {
    auto values = tensor._values();
    if (at::isIntegralType(values.scalar_type(), /*includeBool=*/false)) {
      values.div_(world_size, "trunc");
    } else {
      values.div_(world_size);
    }
  }
}

}  // namespace

void GlooBackend::complete(Completion& completion, const Reduction& reduction, std::vector<Carrier> carriers,
                           const Tensors& tensors) const {
  bool has_work = reduction.has_last_touch();
  bool stands_in = false;
  for (size_t i = 0; i < tensors.size(); ++i) {
    has_work = has_work || carriers[i].is_copy;
    stands_in = stands_in || !carriers[i].tensor.is_same(tensors[i]);
  }
  if (stands_in) completion.result = tensors;
  if (!has_work) return;
  completion.after = [reduction, carriers = std::move(carriers), tensors, size = getSize()] {
    for (size_t i = 0; i < tensors.size(); ++i) {
      reduction.decode(carriers[i].tensor, carriers[i].is_copy, tensors[i], size);
    }
  };
}

template <class EngineOptions>
GlooBackend::WorkPtr GlooBackend::reduce_each(const Tensors& carriers, const EngineOptions& opts, c10d::ReduceOp op) {
  c10d::AllreduceOptions engine_options;
  engine_options.reduceOp = std::move(op);
  engine_options.timeout = opts.timeout;
  engine_options.asyncOp = opts.asyncOp;
  std::vector<WorkPtr> works;
  for (const auto& carrier : carriers) {
    Tensors tensors{carrier};
    works.push_back(ProcessGroupGloo::allreduce(tensors, engine_options));
  }
  if (works.size() == 1) return works[0];
  return c10::make_intrusive<JoinedWork>(std::move(works));
}

GlooBackend::WorkPtr GlooBackend::reduce_sparse(const char* name, Tensors& tensors,
                                                const c10d::AllreduceOptions& opts) {
  return run(describe(name, tensors, shapes_text(tensors), opts.reduceOp), tensors, [&](Completion& completion) {
    auto engine_options = opts;
    if (opts.reduceOp == c10d::ReduceOp::AVG) {
      engine_options.reduceOp = c10d::ReduceOp::SUM;
      completion.after = [tensors, size = getSize()] { divide_values(tensors, size); };
    }
    return ProcessGroupGloo::allreduce(tensors, engine_options);
  });
}

// [Note: reduce_scatter on Gloo]
// PyTorch's Gloo reduces every part on every rank. These functions do the same, so that Python ranks can take part.
GlooBackend::WorkPtr GlooBackend::scatter_reduced(const char* name, const Tensors& outputs, const Tensors& inputs,
                                                  const c10d::ReduceScatterOptions& opts) {
  check_pairs(name, inputs, outputs, getSize(), "input");
  std::vector<Reduction> reductions;
  for (const auto& input : inputs) reductions.emplace_back(name, opts.reduceOp, input.scalar_type());
  return run(describe(name, outputs, shapes_text(outputs), opts.reduceOp), inputs, [&](Completion& completion) {
    Tensors carriers;
    Tensors parts;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto carrier = reductions[i].encode(inputs[i], /*may_overwrite=*/false).tensor;
      parts.push_back(carrier.view({getSize(), carrier.numel() / getSize()})[getRank()]);
      carriers.push_back(carrier);
    }
    auto work = reduce_each(carriers, opts, reductions[0].engine_op());
    completion.after = [reductions = std::move(reductions), parts, outputs, size = getSize()] {
      for (size_t i = 0; i < parts.size(); ++i) {
        reductions[i].decode(parts[i], /*is_copy=*/true, outputs[i], size);
      }
    };
    completion.result = outputs;
    return work;
  });
}

GlooBackend::WorkPtr GlooBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  check_tensors("all_reduce", tensors);
  if (tensors[0].is_sparse()) return reduce_sparse("all_reduce", tensors, opts);
  check_can_be_written("all_reduce", tensors);
  const Reduction reduction("all_reduce", opts.reduceOp, tensors[0].scalar_type());
  return run(describe("all_reduce", tensors, shapes_text(tensors), opts.reduceOp), tensors,
             [&](Completion& completion) {
               auto carriers = encode(reduction, tensors);
               auto engine_tensors = tensors_of(carriers);
               auto work = ProcessGroupGloo::allreduce(engine_tensors, with_op(opts, reduction));
               complete(completion, reduction, std::move(carriers), tensors);
               return work;
             });
}

GlooBackend::WorkPtr GlooBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  check_tensors("all_reduce_sparse", tensors);
  return reduce_sparse("all_reduce_sparse", tensors, opts);
}

GlooBackend::WorkPtr GlooBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  check_tensors("all_reduce_coalesced", tensors);
  check_can_be_written("all_reduce_coalesced", tensors);
  const Reduction reduction("all_reduce_coalesced", opts.reduceOp, tensors[0].scalar_type());
  return run(describe("all_reduce_coalesced", tensors, shapes_text(tensors), opts.reduceOp), tensors,
             [&](Completion& completion) {
               auto carriers = encode(reduction, tensors);
               auto engine_tensors = tensors_of(carriers);
               auto work = tensors[0].is_cpu()
                               ? ProcessGroupGloo::allreduce_coalesced(engine_tensors, with_op(opts, reduction))
                               : reduce_each(engine_tensors, opts, reduction.engine_op());
               complete(completion, reduction, std::move(carriers), tensors);
               return work;
             });
}

GlooBackend::WorkPtr GlooBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  check_tensors("reduce", tensors);
  check_can_be_written("reduce", tensors);
  const Reduction reduction("reduce", opts.reduceOp, tensors[0].scalar_type());
  auto operation = describe("reduce", tensors, shapes_text(tensors), opts.reduceOp);
  operation.root = static_cast<int>(opts.rootRank);
  return run(std::move(operation), tensors, [&](Completion& completion) {
    auto carriers = encode(reduction, tensors);
    auto engine_tensors = tensors_of(carriers);
    auto work = ProcessGroupGloo::reduce(engine_tensors, with_op(opts, reduction));
    if (opts.rootRank == getRank()) complete(completion, reduction, std::move(carriers), tensors);
    return work;
  });
}

GlooBackend::WorkPtr GlooBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                 const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK_VALUE(outputs.size() == 1, "[cohort] reduce_scatter needs one output, got ", outputs.size());
  check_list("reduce_scatter", inputs, outputs[0], getRank(), getSize());
  check_can_be_written("reduce_scatter", outputs);
  const auto& list = inputs[0];
  const Reduction reduction("reduce_scatter", opts.reduceOp, outputs[0].scalar_type());
  return run(describe("reduce_scatter", outputs, {}, opts.reduceOp), list, [&](Completion& completion) {
    Tensors carriers;
    for (const auto& input : list) carriers.push_back(reduction.encode(input, /*may_overwrite=*/false).tensor);
    auto work = reduce_each(carriers, opts, reduction.engine_op());
    completion.after = [reduction, mine = carriers[getRank()], output = outputs[0], size = getSize()] {
      reduction.decode(mine, /*is_copy=*/true, output, size);
    };
    completion.result = outputs;
    return work;
  });
}

GlooBackend::WorkPtr GlooBackend::_reduce_scatter_base(Tensor& output, Tensor& input,
                                                       const c10d::ReduceScatterOptions& opts) {
  return scatter_reduced("reduce_scatter_single", {output}, {input}, opts);
}

GlooBackend::WorkPtr GlooBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                  const c10d::ReduceScatterOptions& opts) {
  return scatter_reduced("reduce_scatter_tensor_coalesced", outputs, inputs, opts);
}

}  // namespace cohort::comm
