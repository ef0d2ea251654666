#include "benchmarks/collectives/gloo_engine.h"

#include <c10/util/Type.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <typeinfo>
#include <vector>

#include "benchmarks/collectives/tensors.h"

namespace cohort::bench {
namespace {

constexpr int kTag = 0;

}  // namespace

GlooEngine::GlooEngine(const std::string& store_path, int rank, int num_ranks) : rank_(rank) {
  const auto store = c10::make_intrusive<c10d::FileStore>(store_path, num_ranks);
  gloo_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, num_ranks,
                                                      c10d::ProcessGroupGloo::Options::create_default());
}

std::string GlooEngine::describe() const {
  const auto& engine = *gloo_;
  return c10::demangle(typeid(engine).name());
}

Call GlooEngine::prepare(const CollectiveCase& what, const Buffers& buffers) {
  const auto plan = plan_buffers(what, 0);
  auto input = tensor_over(what, buffers.input, plan.input_bytes);
  auto output = plan.output_bytes > 0 ? tensor_over(what, buffers.output, plan.output_bytes) : input;
  const auto gloo = gloo_;
  switch (what.op) {
    case Op::kAllReduce:
      return [gloo, tensors = std::vector{input}]() mutable { gloo->allreduce(tensors)->wait(); };
    case Op::kBroadcast:
      return [gloo, tensors = std::vector{input}]() mutable { gloo->broadcast(tensors)->wait(); };
    case Op::kReduce:
      return [gloo, tensors = std::vector{input}]() mutable { gloo->reduce(tensors)->wait(); };
    case Op::kAllGather:
      return [=]() mutable { gloo->_allgather_base(output, input)->wait(); };
    case Op::kReduceScatter:
      return [=]() mutable { gloo->_reduce_scatter_base(output, input)->wait(); };
    case Op::kAllToAll:
      return [=, even = std::vector<int64_t>()]() mutable { gloo->alltoall_base(output, input, even, even)->wait(); };
    case Op::kSendRecv:
      return ping_pong(input, output);
    case Op::kBarrier:
      break;
  }
  return [gloo] { gloo->barrier()->wait(); };
}

Call GlooEngine::ping_pong(const at::Tensor& input, const at::Tensor& output) const {
  return [gloo = gloo_, peer = 1 - rank_, is_first = rank_ == 0, sent = std::vector{input},
          received = std::vector{output}]() mutable {
    if (is_first) gloo->send(sent, peer, kTag)->wait();
    gloo->recv(received, peer, kTag)->wait();
    if (!is_first) gloo->send(sent, peer, kTag)->wait();
  };
}

}  // namespace cohort::bench
