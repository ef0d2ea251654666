// Collectives that move tensors as they are.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include "cohort/comm/shm/element_types.h"
#include "cohort/comm/shm/shm_backend.h"
#include "cohort/comm/shm/shm_checks.h"
#include "cohort/comm/shm/simple_pair.h"
#include "cohort/comm/tensors/overlap.h"
#include "cohort/comm/tensors/tensor_checks.h"

namespace cohort::comm {
namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;

constexpr ShmOperation kBroadcast{"broadcast", "shm:broadcast", OpType::BROADCAST};
constexpr ShmOperation kAllGather{"all_gather", "shm:all_gather", OpType::ALLGATHER};
constexpr ShmOperation kAllGatherSingle{"all_gather_single", "shm:all_gather", OpType::_ALLGATHER_BASE};
constexpr ShmOperation kAllGatherCoalesced{"all_gather_coalesced", "shm:all_gather", OpType::ALLGATHER_COALESCED};
constexpr ShmOperation kAllGatherIntoTensorCoalesced{"all_gather_into_tensor_coalesced", "shm:all_gather",
                                                     OpType::COALESCED};
constexpr ShmOperation kGather{"gather", "shm:gather", OpType::GATHER};
constexpr ShmOperation kScatter{"scatter", "shm:scatter", OpType::SCATTER};
constexpr ShmOperation kAllToAll{"all_to_all", "shm:all_to_all", OpType::ALLTOALL, false, false};
constexpr ShmOperation kAllToAllSingle{"all_to_all_single", "shm:all_to_all", OpType::ALLTOALL_BASE, false, false};

// Arguments of one call of the engine: plain tensors as pointers to their memory.
struct Gathering {
  at::Tensor input;
  std::vector<void*> outputs;
};

std::vector<void*> memory_of(const Tensors& tensors) {
  std::vector<void*> pointers;
  pointers.reserve(tensors.size());
  for (const auto& tensor : tensors) pointers.push_back(tensor.data_ptr());
  return pointers;
}

std::vector<const void*> const_memory_of(const Tensors& tensors) {
  std::vector<const void*> pointers;
  pointers.reserve(tensors.size());
  for (const auto& tensor : tensors) pointers.push_back(tensor.const_data_ptr());
  return pointers;
}

std::vector<size_t> counts_of(const Tensors& tensors) {
  std::vector<size_t> counts;
  for (const auto& tensor : tensors) counts.push_back(elements_of(tensor).count);
  return counts;
}

// Splits a plain tensor into one equal part per rank.
std::vector<void*> parts_of(const at::Tensor& plain, int world_size) {
  const auto size = static_cast<size_t>(world_size);
  const EqualParts<void*> parts(plain.data_ptr(), plain.nbytes() / size, world_size);
  return {parts.data(), parts.data() + size};
}

// Parts of a plain tensor along dimension 0. If there are no splits, the parts are equal.
struct Parts {
  std::vector<void*> pointers;
  std::vector<size_t> counts;

  Parts(const at::Tensor& plain, const std::vector<int64_t>& splits, int world_size) {
    const auto elements = elements_of(plain);
    const auto rows = static_cast<size_t>(plain.size(0));
    const auto row = rows == 0 ? 0 : elements.count / rows;
    auto* memory = static_cast<std::byte*>(plain.data_ptr());
    for (int rank = 0; rank < world_size; ++rank) {
      const auto size = static_cast<size_t>(world_size);
      counts.push_back(row * (splits.empty() ? rows / size : static_cast<size_t>(splits[rank])));
      pointers.push_back(memory);
      if (memory) memory += counts.back() * shm::size_of(elements.dtype);
    }
  }
  std::vector<const void*> const_pointers() const { return {pointers.begin(), pointers.end()}; }
};

// Whether all_to_all_single, which splits by rows, exchanges equal parts.
bool are_exchanged_evenly(const at::Tensor& output, const at::Tensor& input, int world_size) {
  return is_simple_pair(output, input, 1) && input.dim() > 0 && output.dim() > 0 && input.size(0) % world_size == 0 &&
         output.size(0) % world_size == 0;
}

// One all_gather of the engine between the tensors of a simple pair.
struct SimpleGathering {
  SimpleGathering(const at::Tensor& output, const at::Tensor& input, int world_size)
      : parts(output.data_ptr(), input.nbytes(), world_size),
        in(input.const_data_ptr()),
        elements(elements_of(input)) {}

  shm::Outcome operator()(shm::Group& group, const shm::CallOptions& options) const {
    return group.all_gather(in, parts.data(), elements, options);
  }

  EqualParts<void*> parts;
  const void* in;
  shm::Elements elements;
};

// One all_to_all of the engine in equal parts.
struct EvenExchange {
  EvenExchange(const at::Tensor& output, const at::Tensor& input, int world_size)
      : elements(elements_of(input)),
        outs(output.data_ptr(), input.nbytes() / static_cast<size_t>(world_size), world_size),
        ins(input.const_data_ptr(), input.nbytes() / static_cast<size_t>(world_size), world_size),
        counts(static_cast<size_t>(world_size), elements.count / static_cast<size_t>(world_size)) {}

  shm::Outcome operator()(shm::Group& group, const shm::CallOptions& options) const {
    return group.all_to_all(ins.data(), counts.data(), outs.data(), counts.data(), elements.dtype, options);
  }

  shm::Elements elements;
  EqualParts<void*> outs;
  EqualParts<const void*> ins;
  c10::SmallVector<size_t, 8> counts;
};

Tensors flattened(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace

ShmBackend::WorkPtr ShmBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  check_one("broadcast", tensors);
  check_root("broadcast", opts.rootRank, size_);
  const bool is_root = opts.rootRank == rank_;
  if (!is_root) check_can_be_written("broadcast", tensors);
  const Request request{.operation = kBroadcast,
                        .is_async = opts.asyncOp,
                        .timeout = opts.timeout,
                        .root = static_cast<int>(opts.rootRank),
                        .caller = __builtin_return_address(0)};
  ContiguousCopies copies;
  auto memory = is_root ? copies.sent(tensors[0]) : copies.received(tensors[0]);
  return run(request, tensors, is_root ? tensors : Tensors{}, tensors,
             [memory = std::move(memory), copies = std::move(copies), root = request.root](
                 shm::Group& group, const shm::CallOptions& options) {
               auto failure = group.broadcast(memory.data_ptr(), elements_of(memory), root, options);
               if (!failure) copies.copy_back();
               return failure;
             });
}

// `outputs[i]`: the destinations of every rank's `inputs[i]`, one pointer per rank.
ShmBackend::WorkPtr ShmBackend::gather_each(const Request& request, const Tensors& inputs,
                                            std::vector<std::vector<void*>> outputs, ContiguousCopies copies,
                                            Tensors kept, const Tensors& results) {
  std::vector<Gathering> gatherings;
  for (size_t i = 0; i < inputs.size(); ++i) {
    gatherings.push_back({copies.sent(inputs[i]), std::move(outputs[i])});
  }
  return run(request, inputs, inputs, results,
             [gatherings = std::move(gatherings), copies = std::move(copies), kept = std::move(kept)](
                 shm::Group& group, const shm::CallOptions& options) {
               for (const auto& [input, pointers] : gatherings) {
                 const auto failure =
                     group.all_gather(input.const_data_ptr(), pointers.data(), elements_of(input), options);
                 if (failure) return failure;
               }
               copies.copy_back();
               return shm::Outcome();
             });
}

ShmBackend::WorkPtr ShmBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) {
  check_one("all_gather", inputs);
  const auto sizes = check_list("all_gather", outputs, inputs[0], rank_, size_);
  check_dense("all_gather", outputs[0]);
  check_can_be_written("all_gather", outputs[0]);
  const Request request{.operation = kAllGather,
                        .is_async = opts.asyncOp,
                        .timeout = opts.timeout,
                        .caller = __builtin_return_address(0)};
  if (sizes == Sizes::kUneven) return gather_uneven(request, inputs, outputs[0]);
  ContiguousCopies copies;
  const bool in_place = is_in_place(inputs[0], outputs[0][static_cast<size_t>(rank_)]);
  auto received = copies.received(outputs[0], overlap(outputs[0], in_place ? Tensors{} : inputs));
  std::vector<std::vector<void*>> pointers{memory_of(received)};
  return gather_each(request, inputs, std::move(pointers), std::move(copies), std::move(received), outputs[0]);
}

// All ranks come here, because the list has the same sizes on every rank. Every rank broadcasts its tensor.
ShmBackend::WorkPtr ShmBackend::gather_uneven(const Request& request, const Tensors& inputs, const Tensors& outputs) {
  ContiguousCopies copies;
  auto sent = copies.sent(inputs[0]);
  auto received = copies.received(outputs, overlap(outputs, inputs));
  return run(request, inputs, inputs, outputs,
             [sent = std::move(sent), received = std::move(received), copies = std::move(copies),
              own = static_cast<size_t>(rank_)](shm::Group& group, const shm::CallOptions& options) {
               as_bytes(received[own]).copy_(as_bytes(sent));
               for (size_t rank = 0; rank < received.size(); ++rank) {
                 auto failure = group.broadcast(received[rank].data_ptr(), elements_of(received[rank]),
                                                static_cast<int>(rank), options);
                 if (failure) return failure;
               }
               copies.copy_back();
               return shm::Outcome();
             });
}

ShmBackend::WorkPtr ShmBackend::_allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& opts) {
  const Request request{.operation = kAllGatherSingle,
                        .is_async = opts.asyncOp,
                        .timeout = opts.timeout,
                        .caller = __builtin_return_address(0)};
  if (!is_simple_pair(output, input, size_)) return gather_into(request, {output}, {input});
  return run(request, input, input, output, SimpleGathering(output, input, size_));
}

ShmBackend::WorkPtr ShmBackend::gather_into(const Request& request, const Tensors& outputs, const Tensors& inputs) {
  check_pairs(request.operation.name, outputs, inputs, size_);
  check_dense(request.operation.name, outputs);
  check_dense(request.operation.name, inputs);
  check_can_be_written(request.operation.name, outputs);
  Tensors read;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_in_place(inputs[i], outputs[i], rank_)) read.push_back(inputs[i]);
  }
  ContiguousCopies copies;
  auto received = copies.received(outputs, overlap(outputs, read));
  std::vector<std::vector<void*>> pointers;
  for (const auto& tensor : received) pointers.push_back(parts_of(tensor, size_));
  return gather_each(request, inputs, std::move(pointers), std::move(copies), std::move(received), outputs);
}

ShmBackend::WorkPtr ShmBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::AllgatherOptions& opts) {
  const Request request{.operation = kAllGatherIntoTensorCoalesced,
                        .is_async = opts.asyncOp,
                        .timeout = opts.timeout,
                        .caller = __builtin_return_address(0)};
  return gather_into(request, outputs, inputs);
}

ShmBackend::WorkPtr ShmBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& opts) {
  check_tensors("all_gather_coalesced", inputs);
  check_dense("all_gather_coalesced", inputs);
  TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(size_),
                    "[cohort] all_gather_coalesced needs one list of tensors per rank, ", size_, ", got ",
                    outputs.size());
  for (const auto& list : outputs) {
    check_pairs("all_gather_coalesced", list, inputs, 1);
    check_dense("all_gather_coalesced", list);
    check_can_be_written("all_gather_coalesced", list);
  }
  Tensors read;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_in_place(inputs[i], outputs[static_cast<size_t>(rank_)][i])) read.push_back(inputs[i]);
  }
  const auto results = flattened(outputs);
  const bool apart = overlap(results, read);
  const Request request{.operation = kAllGatherCoalesced,
                        .is_async = opts.asyncOp,
                        .timeout = opts.timeout,
                        .caller = __builtin_return_address(0)};
  ContiguousCopies copies;
  Tensors kept;
  std::vector<std::vector<void*>> pointers(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const auto& list : outputs) {
      kept.push_back(copies.received(list[i], apart));
      pointers[i].push_back(kept.back().data_ptr());
    }
  }
  return gather_each(request, inputs, std::move(pointers), std::move(copies), std::move(kept), results);
}

ShmBackend::WorkPtr ShmBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                       const c10d::GatherOptions& opts) {
  check_one("gather", inputs);
  check_root("gather", opts.rootRank, size_);
  const bool is_root = opts.rootRank == rank_;
  if (is_root) {
    check_equal_list("gather", outputs, inputs[0], rank_, size_);
    check_can_be_written("gather", outputs[0]);
  }
  TORCH_CHECK_VALUE(is_root || outputs.empty(), "[cohort] gather: outputs must be empty on ranks other than the root");
  const Request request{.operation = kGather,
                        .is_async = opts.asyncOp,
                        .timeout = opts.timeout,
                        .root = static_cast<int>(opts.rootRank),
                        .caller = __builtin_return_address(0)};
  ContiguousCopies copies;
  auto sent = copies.sent(inputs[0]);
  Tensors received;
  if (is_root) {
    const bool in_place = is_in_place(inputs[0], outputs[0][static_cast<size_t>(rank_)]);
    received = copies.received(outputs[0], overlap(outputs[0], in_place ? Tensors{} : inputs));
  }
  return run(request, inputs, inputs, is_root ? outputs[0] : Tensors{},
             [sent = std::move(sent), received = std::move(received), copies = std::move(copies), root = request.root](
                 shm::Group& group, const shm::CallOptions& options) {
               const auto pointers = memory_of(received);
               auto failure = group.gather(sent.const_data_ptr(), pointers.empty() ? nullptr : pointers.data(),
                                           elements_of(sent), root, options);
               if (!failure) copies.copy_back();
               return failure;
             });
}

ShmBackend::WorkPtr ShmBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                        const c10d::ScatterOptions& opts) {
  check_one("scatter", outputs);
  check_root("scatter", opts.rootRank, size_);
  const bool is_root = opts.rootRank == rank_;
  if (is_root) check_equal_list("scatter", inputs, outputs[0], rank_, size_);
  check_can_be_written("scatter", outputs);
  TORCH_CHECK_VALUE(is_root || inputs.empty(), "[cohort] scatter: inputs must be empty on ranks other than the root");
  const Request request{.operation = kScatter,
                        .is_async = opts.asyncOp,
                        .timeout = opts.timeout,
                        .root = static_cast<int>(opts.rootRank),
                        .caller = __builtin_return_address(0)};
  ContiguousCopies copies;
  auto sent = is_root ? copies.sent(inputs[0]) : Tensors{};
  const bool in_place = is_root && is_in_place(outputs[0], inputs[0][static_cast<size_t>(rank_)]);
  auto received = copies.received(outputs[0], is_root && !in_place && overlap(outputs, inputs[0]));
  return run(request, outputs, is_root ? inputs[0] : Tensors{}, outputs,
             [sent = std::move(sent), received = std::move(received), copies = std::move(copies), root = request.root](
                 shm::Group& group, const shm::CallOptions& options) {
               const auto pointers = const_memory_of(sent);
               auto failure = group.scatter(pointers.empty() ? nullptr : pointers.data(), received.data_ptr(),
                                            elements_of(received), root, options);
               if (!failure) copies.copy_back();
               return failure;
             });
}

ShmBackend::WorkPtr ShmBackend::alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& output_splits,
                                              std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) {
  const Request request{.operation = kAllToAllSingle,
                        .is_async = opts.asyncOp,
                        .timeout = opts.timeout,
                        .caller = __builtin_return_address(0)};
  if (output_splits.empty() && input_splits.empty() && are_exchanged_evenly(output, input, size_)) {
    return run(request, input, input, output, EvenExchange(output, input, size_));
  }
  check_tensors("all_to_all_single", {output, input});
  check_dense("all_to_all_single", {output, input});
  check_splits(output, output_splits, size_, "output");
  check_splits(input, input_splits, size_, "input");
  ContiguousCopies copies;
  check_can_be_written("all_to_all_single", {output});
  auto sent = copies.sent(input);
  auto received = copies.received(output, overlap({output}, {input}));
  Parts ins(sent, input_splits, size_);
  Parts outs(received, output_splits, size_);
  return run(request, {input}, {input}, {output},
             [sent = std::move(sent), received = std::move(received), copies = std::move(copies), ins = std::move(ins),
              outs = std::move(outs)](shm::Group& group, const shm::CallOptions& options) {
               auto failure = group.all_to_all(ins.const_pointers().data(), ins.counts.data(), outs.pointers.data(),
                                               outs.counts.data(), elements_of(sent).dtype, options);
               if (!failure) copies.copy_back();
               return failure;
             });
}

ShmBackend::WorkPtr ShmBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  check_tensors("all_to_all", outputs);
  check_tensors("all_to_all", inputs);
  check_tensors("all_to_all", {outputs[0], inputs[0]});
  check_dense("all_to_all", outputs);
  check_dense("all_to_all", inputs);
  const auto size = static_cast<size_t>(size_);
  TORCH_CHECK_VALUE(outputs.size() == size && inputs.size() == size, "[cohort] all_to_all needs one tensor per rank, ",
                    size, ", got ", outputs.size(), " outputs and ", inputs.size(), " inputs");
  const Request request{
      .operation = kAllToAll, .is_async = opts.asyncOp, .timeout = opts.timeout, .caller = __builtin_return_address(0)};
  ContiguousCopies copies;
  check_can_be_written("all_to_all", outputs);
  auto sent = copies.sent(inputs);
  auto received = copies.received(outputs, overlap(outputs, inputs));
  return run(request, inputs, inputs, outputs,
             [sent = std::move(sent), received = std::move(received), copies = std::move(copies)](
                 shm::Group& group, const shm::CallOptions& options) {
               auto failure =
                   group.all_to_all(const_memory_of(sent).data(), counts_of(sent).data(), memory_of(received).data(),
                                    counts_of(received).data(), elements_of(sent[0]).dtype, options);
               if (!failure) copies.copy_back();
               return failure;
             });
}

bool ShmBackend::broadcast_now(const Tensor& tensor, int root) {
  if (!is_simple(tensor) || tensor.is_complex()) return false;
  return run_directly({.operation = kBroadcast, .root = root}, tensor,
                      root == rank_ ? at::TensorList(tensor) : at::TensorList(),
                      [&](shm::Group& group, const shm::CallOptions& options) {
                        return group.broadcast(tensor.data_ptr(), elements_of(tensor), root, options);
                      });
}

bool ShmBackend::all_gather_now(const Tensor& output, const Tensor& input) {
  if (!is_simple_pair(output, input, size_) || input.is_complex()) return false;
  return run_directly({.operation = kAllGatherSingle}, input, input, SimpleGathering(output, input, size_));
}

bool ShmBackend::all_to_all_now(const Tensor& output, const Tensor& input) {
  if (!are_exchanged_evenly(output, input, size_) || input.is_complex()) return false;
  return run_directly({.operation = kAllToAllSingle}, input, input, EvenExchange(output, input, size_));
}

}  // namespace cohort::comm
