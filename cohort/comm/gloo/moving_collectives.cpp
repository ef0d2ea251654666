// Collectives that move tensors as they are.
#include <ATen/ATen.h>

#include <numeric>

#include "cohort/comm/backend/joined_work.h"
#include "cohort/comm/gloo/gloo_backend.h"
#include "cohort/comm/tensors/overlap.h"

namespace cohort::comm {
namespace {

using Splits = std::vector<int64_t>;

// Converts splits from rows of `tensor` to elements of its flat contiguous copy.
Splits in_elements(Splits splits, const at::Tensor& tensor, const at::Tensor& flat) {
  const auto row = tensor.size(0) == 0 ? 0 : flat.numel() / tensor.size(0);
  for (auto& split : splits) split *= row;
  return splits;
}

Splits sizes_in_bytes(const std::vector<at::Tensor>& tensors) {
  Splits sizes;
  for (const auto& tensor : tensors) sizes.push_back(static_cast<int64_t>(tensor.nbytes()));
  return sizes;
}

}  // namespace

GlooBackend::WorkPtr GlooBackend::gather_packed(const char* name, const Tensors& inputs,
                                                const c10d::AllgatherOptions& opts, const Unpack& unpack) {
  return run(describe(name, inputs, shapes_text(inputs)), inputs, [&](Completion& completion) {
    Tensors sent{pack(inputs)};
    const auto all = at::empty({getSize(), sent[0].numel()}, sent[0].options());
    std::vector<Tensors> received{all.unbind(0)};
    auto work = ProcessGroupGloo::allgather(received, sent, opts);
    ContiguousCopies copies;
    unpack(copies, all);
    completion.after = [copies = std::move(copies)] { copies.copy_back(); };
    return work;
  });
}

GlooBackend::WorkPtr GlooBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  check_tensors("broadcast", tensors);
  if (opts.rootRank != getRank()) check_can_be_written("broadcast", tensors);
  auto operation = describe("broadcast", tensors, shapes_text(tensors));
  operation.root = static_cast<int>(opts.rootRank);
  return run(std::move(operation), opts.rootRank == getRank() ? tensors : Tensors{}, [&](Completion& completion) {
    ContiguousCopies copies;
    auto exchanged = as_known(copies.exchanged(tensors));
    auto work = ProcessGroupGloo::broadcast(exchanged, opts);
    complete(completion, std::move(copies), tensors);
    return work;
  });
}

GlooBackend::WorkPtr GlooBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& opts) {
  check_tensors("all_gather", inputs);
  const bool is_uneven =
      inputs.size() == 1 && check_list("all_gather", outputs, inputs[0], getRank(), getSize()) == Sizes::kUneven;
  for (const auto& list : outputs) check_can_be_written("all_gather", list);
  if (is_uneven) return gather_uneven(inputs, outputs[0], opts);
  return run(describe("all_gather", inputs, shapes_text(inputs)), inputs, [&](Completion& completion) {
    ContiguousCopies copies;
    auto sent = as_known(copies.sent(inputs));
    std::vector<Tensors> received;
    for (const auto& list : outputs) received.push_back(as_known(copies.received(list, overlap(list))));
    auto work = ProcessGroupGloo::allgather(received, sent, opts);
    if (outputs.size() == 1) complete(completion, std::move(copies), outputs[0]);
    return work;
  });
}

// Works as PyTorch does on NCCL; its Gloo refuses. Every rank broadcasts its tensor.
GlooBackend::WorkPtr GlooBackend::gather_uneven(const Tensors& inputs, const Tensors& outputs,
                                                const c10d::AllgatherOptions& opts) {
  return run(describe("all_gather", inputs, {}), inputs, [&](Completion& completion) {
    ContiguousCopies copies;
    const auto received = as_known(copies.received(outputs, overlap(outputs, inputs)));
    received[static_cast<size_t>(getRank())].copy_(as_known(copies.sent(inputs[0])).view_as(received[getRank()]));
    std::vector<WorkPtr> works;
    for (int rank = 0; rank < getSize(); ++rank) {
      c10d::BroadcastOptions engine_options;
      engine_options.rootRank = rank;
      engine_options.timeout = opts.timeout;
      engine_options.asyncOp = opts.asyncOp;
      Tensors part{received[static_cast<size_t>(rank)]};
      works.push_back(ProcessGroupGloo::broadcast(part, engine_options));
    }
    complete(completion, std::move(copies), outputs);
    completion.result = outputs;
    return c10::make_intrusive<JoinedWork>(std::move(works));
  });
}

GlooBackend::WorkPtr GlooBackend::_allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& opts) {
  check_pairs("all_gather_single", {output}, {input}, getSize());
  check_can_be_written("all_gather_single", {output});
  return run(describe("all_gather_single", {input}, shapes_text({input})), {input}, [&](Completion& completion) {
    ContiguousCopies copies;
    // Flat, so that PyTorch's two forms of `output` and tensors without dimensions need no special case.
    Tensors sent{as_known(copies.sent(input)).view(-1)};
    std::vector<Tensors> received{as_known(copies.received(output)).view({getSize(), sent[0].numel()}).unbind(0)};
    auto work = ProcessGroupGloo::allgather(received, sent, opts);
    complete(completion, std::move(copies), {output});
    completion.result = Tensors{output};
    return work;
  });
}

GlooBackend::WorkPtr GlooBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  check_tensors("all_gather_coalesced", inputs);
  TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(getSize()),
                    "[cohort] all_gather_coalesced needs one list of tensors per rank, ", getSize(), ", got ",
                    outputs.size());
  for (const auto& list : outputs) check_pairs("all_gather_coalesced", list, inputs, 1);
  return gather_packed("all_gather_coalesced", inputs, opts, [&](ContiguousCopies& copies, const Tensor& packed) {
    for (int rank = 0; rank < getSize(); ++rank) {
      int64_t begin = 0;
      for (const auto& output : outputs[rank]) {
        const auto num_bytes = static_cast<int64_t>(output.nbytes());
        copies.copy_back_later(output, packed[rank].narrow(0, begin, num_bytes));
        begin += num_bytes;
      }
    }
  });
}

GlooBackend::WorkPtr GlooBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                  const c10d::AllgatherOptions& opts) {
  check_pairs("all_gather_into_tensor_coalesced", outputs, inputs, getSize());
  return gather_packed("all_gather_into_tensor_coalesced", inputs, opts,
                       [&](ContiguousCopies& copies, const Tensor& packed) {
                         int64_t begin = 0;
                         for (size_t i = 0; i < inputs.size(); ++i) {
                           const auto num_bytes = static_cast<int64_t>(inputs[i].nbytes());
                           copies.copy_back_later(outputs[i], packed.narrow(1, begin, num_bytes));
                           begin += num_bytes;
                         }
                       });
}

GlooBackend::WorkPtr GlooBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                         const c10d::GatherOptions& opts) {
  check_tensors("gather", inputs);
  for (const auto& list : outputs) check_can_be_written("gather", list);
  auto operation = describe("gather", inputs, shapes_text(inputs));
  operation.root = static_cast<int>(opts.rootRank);
  return run(std::move(operation), inputs, [&](Completion& completion) {
    ContiguousCopies copies;
    auto sent = as_known(copies.sent(inputs));
    std::vector<Tensors> received;
    for (const auto& list : outputs) received.push_back(as_known(copies.received(list, overlap(list))));
    auto work = ProcessGroupGloo::gather(received, sent, opts);
    if (outputs.size() == 1) complete(completion, std::move(copies), outputs[0]);
    return work;
  });
}

GlooBackend::WorkPtr GlooBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                          const c10d::ScatterOptions& opts) {
  check_tensors("scatter", outputs);
  check_can_be_written("scatter", outputs);
  auto operation = describe("scatter", outputs, shapes_text(outputs));
  operation.root = static_cast<int>(opts.rootRank);
  return run(std::move(operation), inputs.empty() ? Tensors{} : inputs[0], [&](Completion& completion) {
    ContiguousCopies copies;
    std::vector<Tensors> sent;
    for (const auto& list : inputs) sent.push_back(as_known(copies.sent(list)));
    const bool apart = !inputs.empty() && overlap(outputs, inputs[0]);
    auto received = as_known(copies.received(outputs, apart));
    auto work = ProcessGroupGloo::scatter(received, sent, opts);
    complete(completion, std::move(copies), outputs);
    return work;
  });
}

GlooBackend::WorkPtr GlooBackend::alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& output_splits,
                                                std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) {
  check_tensors("all_to_all_single", {output, input});
  check_can_be_written("all_to_all_single", {output});
  check_splits(output, output_splits, getSize(), "output");
  check_splits(input, input_splits, getSize(), "input");
  return run(describe("all_to_all_single", {input}, {}), {input}, [&](Completion& completion) {
    ContiguousCopies copies;
    auto sent = as_known(copies.sent(input)).view(-1);
    auto received = as_known(copies.received(output, overlap({output}, {input}))).view(-1);
    auto sent_splits = in_elements(input_splits, input, sent);
    auto received_splits = in_elements(output_splits, output, received);
    auto work = ProcessGroupGloo::alltoall_base(received, sent, received_splits, sent_splits, opts);
    complete(completion, std::move(copies), {output});
    completion.result = Tensors{output};
    return work;
  });
}

GlooBackend::WorkPtr GlooBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  check_tensors("all_to_all", outputs);
  check_tensors("all_to_all", inputs);
  check_can_be_written("all_to_all", outputs);
  const auto size = static_cast<size_t>(getSize());
  TORCH_CHECK_VALUE(outputs.size() == size && inputs.size() == size, "[cohort] all_to_all needs one tensor per rank, ",
                    size, ", got ", outputs.size(), " outputs and ", inputs.size(), " inputs");
  return run(describe("all_to_all", inputs, {}), inputs, [&](Completion& completion) {
    ContiguousCopies copies;
    auto sent = pack(inputs);
    auto sent_splits = sizes_in_bytes(inputs);
    auto received_splits = sizes_in_bytes(outputs);
    const auto total = std::accumulate(received_splits.begin(), received_splits.end(), int64_t{0});
    auto received = at::empty({total}, sent.options());
    int64_t begin = 0;
    for (size_t rank = 0; rank < size; ++rank) {
      copies.copy_back_later(outputs[rank], received.narrow(0, begin, received_splits[rank]));
      begin += received_splits[rank];
    }
    auto work = ProcessGroupGloo::alltoall_base(received, sent, received_splits, sent_splits, opts);
    complete(completion, std::move(copies), outputs);
    return work;
  });
}

}  // namespace cohort::comm
