#include "tests/support/sim_device/stream_backend.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <utility>

#include "cohort/comm/gloo/make_gloo_backend.h"
#include "cohort/comm/nccl/nccl_backend.h"
#include "cohort/comm/registry/backend_registry.h"
#include "tests/support/sim_device/memory.h"
#include "tests/support/sim_device/sim_device.h"
#include "tests/support/sim_device/stream_work.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

Tensors host_views(const Tensors& tensors, c10::Device device) {
  Tensors views;
  for (const auto& tensor : tensors) {
    TORCH_CHECK_VALUE(tensor.device() == device, "Expected the tensors of a collective on one device, got ",
                      device.str(), " and ", tensor.device().str());
    TORCH_CHECK_VALUE(tensor.is_non_overlapping_and_dense(), "Tensors must be contiguous");
    views.push_back(host_view(tensor));
  }
  return views;
}

Tensors joined(Tensors first, const Tensors& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

c10::intrusive_ptr<c10d::Backend> connect(comm::BackendRequest request, const std::string& name, int rank,
                                          int world_size) {
  request.store = c10::make_intrusive<c10d::PrefixStore>(name, request.store);
  request.rank = rank;
  request.world_size = world_size;
  return comm::make_gloo_backend(request);
}

}  // namespace

StreamBackend::StreamBackend(comm::BackendRequest request)
    : Backend(request.rank, request.world_size), request_(std::move(request)) {
  request_.watch = nullptr;  // operations end in the streams' threads
  host_ = connect(request_, "host", getRank(), getSize());
}

StreamBackend::Communicator StreamBackend::communicator(c10::Device device) {
  const std::lock_guard lock(mutex_);
  const auto found = communicators_.find(device.str());
  if (found != communicators_.end()) return found->second;
  const auto join = [request = request_, name = "all" + std::to_string(num_of_all_++)] {
    return connect(request, name, request.rank, request.world_size);
  };
  return communicators_.emplace(device.str(), Communicator{new_stream(device.index()), join}).first->second;
}

StreamBackend::Communicator StreamBackend::communicator_to(c10::Device device, int from, int to) {
  const std::lock_guard lock(mutex_);
  const auto name = "from" + std::to_string(from) + "to" + std::to_string(to);
  const auto key = device.str() + name;
  const auto found = communicators_.find(key);
  if (found != communicators_.end()) return found->second;
  const auto number = std::to_string(num_of_pairs_[name]++);
  const auto join = [request = request_, name = name + "number" + number, rank = getRank() == from ? 0 : 1] {
    return connect(request, name, rank, /*world_size=*/2);
  };
  return communicators_.emplace(key, Communicator{new_stream(device.index()), join}).first->second;
}

WorkPtr StreamBackend::run(const Communicator& communicator, const Tensors& inputs, const Tensors& outputs,
                           const Operation& operation) {
  const auto stream = communicator.stream;
  auto in = host_views(inputs, stream.device());
  auto out = host_views(outputs, stream.device());
  c10::Event begin(type());
  begin.record(current_stream(stream.device_index()));
  begin.block(stream);
  for (const auto& tensor : joined(inputs, outputs)) {
    record_use(tensor.storage().data_ptr(), queue_of(stream));
  }
  queue_of(stream).push([communicator, operation, in = std::move(in), out = std::move(out)] {
    auto& engine = *communicator.engine;
    if (!engine) engine = communicator.connect();
    operation(*engine, in, out)->wait();
  });
  return c10::make_intrusive<StreamWork>(stream, outputs);
}

WorkPtr StreamBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  if (tensors.at(0).is_cpu()) return host_->broadcast(tensors, opts);
  return run(communicator(tensors[0].device()), {}, tensors,
             [opts](auto& engine, Tensors, Tensors out) { return engine.broadcast(out, opts); });
}

WorkPtr StreamBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (tensors.at(0).is_cpu()) return host_->allreduce(tensors, opts);
  return run(communicator(tensors[0].device()), {}, tensors,
             [opts](auto& engine, Tensors, Tensors out) { return engine.allreduce(out, opts); });
}

WorkPtr StreamBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  if (tensors.at(0).is_cpu()) return host_->reduce(tensors, opts);
  return run(communicator(tensors[0].device()), {}, tensors,
             [opts](auto& engine, Tensors, Tensors out) { return engine.reduce(out, opts); });
}

WorkPtr StreamBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  if (inputs.at(0).is_cpu()) return host_->allgather(outputs, inputs, opts);
  return run(communicator(inputs[0].device()), inputs, outputs.at(0), [opts](auto& engine, Tensors in, Tensors out) {
    std::vector<Tensors> lists{std::move(out)};
    return engine.allgather(lists, in, opts);
  });
}

WorkPtr StreamBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  if (input.is_cpu()) return host_->_allgather_base(output, input, opts);
  return run(communicator(input.device()), {input}, {output},
             [opts](auto& engine, Tensors in, Tensors out) { return engine._allgather_base(out[0], in[0], opts); });
}

WorkPtr StreamBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                            const c10d::ReduceScatterOptions& opts) {
  if (input.is_cpu()) return host_->_reduce_scatter_base(output, input, opts);
  return run(communicator(input.device()), {input}, {output}, [opts](auto& engine, Tensors in, Tensors out) {
    return engine._reduce_scatter_base(out[0], in[0], opts);
  });
}

WorkPtr StreamBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) {
  if (outputs.at(0).is_cpu()) return host_->scatter(outputs, inputs, opts);
  const auto sent = inputs.empty() ? Tensors() : inputs.front();
  return run(communicator(outputs[0].device()), sent, outputs, [opts](auto& engine, Tensors in, Tensors out) {
    std::vector<Tensors> lists;
    if (!in.empty()) lists.push_back(std::move(in));
    return engine.scatter(out, lists, opts);
  });
}

WorkPtr StreamBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                     std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) {
  if (input.is_cpu()) return host_->alltoall_base(output, input, output_splits, input_splits, opts);
  return run(communicator(input.device()), {input}, {output}, [=](auto& engine, Tensors in, Tensors out) mutable {
    return engine.alltoall_base(out[0], in[0], output_splits, input_splits, opts);
  });
}

WorkPtr StreamBackend::send(Tensors& tensors, int peer, int tag) {
  if (tensors.at(0).is_cpu()) return host_->send(tensors, peer, tag);
  return run(communicator_to(tensors[0].device(), getRank(), peer), tensors, {},
             [tag](auto& engine, Tensors in, Tensors) { return engine.send(in, 1, tag); });
}

WorkPtr StreamBackend::recv(Tensors& tensors, int peer, int tag) {
  if (tensors.at(0).is_cpu()) return host_->recv(tensors, peer, tag);
  return run(communicator_to(tensors[0].device(), peer, getRank()), {}, tensors,
             [tag](auto& engine, Tensors, Tensors out) { return engine.recv(out, 0, tag); });
}

WorkPtr StreamBackend::barrier(const c10d::BarrierOptions& opts) {
  sim::synchronize();
  return host_->barrier(opts);
}

c10::intrusive_ptr<c10d::Backend> make_device_backend(const comm::BackendRequest& request) {
  if (!is_real()) return c10::make_intrusive<StreamBackend>(request);
  const bool has_own_devices = num_devices() >= request.world_size && type() == at::kCUDA && is_nccl_available();
  return has_own_devices ? comm::make_nccl_backend(request) : comm::make_gloo_backend(request);
}

void register_stream_backend() { register_backend("stream", make_device_backend, {type()}); }

}  // namespace cohort::sim
