// Code that all operations share, sends and receives, barriers.
#include "cohort/comm/gloo/gloo_backend.h"

#include <ATen/ATen.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "cohort/base/system/host.h"
#include "cohort/comm/call/purpose.h"
#include "cohort/comm/error/exception_text.h"
#include "cohort/comm/tensors/operation_text.h"
#include "cohort/comm/tensors/overlap.h"
#include "cohort/comm/watch/peers.h"
#include "cohort/comm/watch/tracked_work.h"

namespace cohort::comm {
namespace {

using job::Operation;

// On accelerators the engine's copies run in its own streams: `after` runs after them, and has finished when it returns.
std::function<void()> in_order(const c10::intrusive_ptr<c10d::Work>& work, std::function<void()> after,
                               const std::vector<at::Tensor>& tensors) {
  if (tensors.empty() || tensors[0].is_cpu()) return after;
  return [work, after = std::move(after), device = tensors[0].device()] {
    work->synchronize();
    after();
    c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
  };
}

}  // namespace

GlooBackend::GlooBackend(const BackendRequest& request, c10::intrusive_ptr<Options> engine_options)
    : ProcessGroupGloo(request.store, request.rank, request.world_size, std::move(engine_options)),
      watch_(request.watch ? request.watch : engine_text_watch()),
      group_name_(request.group_name),
      host_(base::host_name()),
      checks_nan_(nan_check_wanted()) {}

job::Operation GlooBackend::describe(const char* name, const Tensors& tensors, std::string shape) const {
  job::Operation operation{.name = name,
                           .sequence = 0,
                           .group = group_name_,
                           .rank = getRank(),
                           .world_size = getSize(),
                           .host = host_,
                           .backend = "gloo"};
  for (const auto& tensor : tensors) {
    operation.num_bytes += tensor.is_sparse() ? 0 : static_cast<int64_t>(tensor.nbytes());
  }
  if (!tensors.empty()) operation.dtype = dtype_name(tensors.front().scalar_type());
  operation.shape = std::move(shape);
  if (const auto* purpose = CalledFor::current()) operation.purpose = purpose->words;
  return operation;
}

job::Operation GlooBackend::describe(const char* name, const Tensors& tensors, std::string shape,
                                     const c10d::ReduceOp& op) const {
  auto operation = describe(name, tensors, std::move(shape));
  operation.reduce_op = reduce_op_name(op);
  return operation;
}

job::Operation GlooBackend::point_to_point(const char* name, const Tensors& tensors, int peer) const {
  auto operation = describe(name, tensors, {});
  operation.point_to_point = true;
  operation.root = peer;
  return operation;
}

void GlooBackend::start(job::Operation& operation, const Tensors& handed_in) {
  operation.sequence = operation.point_to_point ? ++num_point_to_point_ : ++num_collectives_;
  watch_->starting(operation);
  if (checks_nan_) check_for_nan(operation, handed_in);
}

GlooBackend::WorkPtr GlooBackend::track(job::Operation operation, WorkPtr work, Completion completion,
                                        const Tensors& handed_in) {
  auto after = std::move(completion.after);
  if (after) after = in_order(work, std::move(after), handed_in);
  auto tracked =
      c10::make_intrusive<TrackedWork>(std::move(work), std::move(operation), watch_, gloo_failure, std::move(after));
  if (completion.result) tracked->replace_result(std::move(*completion.result));
  return tracked;
}

void GlooBackend::complete(Completion& completion, ContiguousCopies copies, const Tensors& results) {
  if (results.empty()) return;
  if (copies.has_copies() || !gloo_knows(results[0].scalar_type())) completion.result = results;
  if (!copies.has_copies()) return;
  completion.after = [copies = std::move(copies)] { copies.copy_back(); };
}

GlooBackend::Tensors GlooBackend::received_on_host(const Tensors& tensors, Completion& completion) const {
  ContiguousCopies copies;
  Tensors received;
  for (const auto& tensor : tensors) {
    if (tensor.is_cpu()) {
      received.push_back(as_known(copies.received(tensor)));
      continue;
    }
    received.push_back(at::empty(tensor.sizes(), tensor.options().device(at::kCPU)));
    copies.copy_back_later(tensor, received.back());
  }
  complete(completion, std::move(copies), tensors);
  return received;
}

GlooBackend::WorkPtr GlooBackend::send(Tensors& tensors, int dst, int tag) {
  if (in_monitored_barrier_) return ProcessGroupGloo::send(tensors, dst, tag);
  check_tensors("send", tensors);
  check_peer("send", dst, getRank(), getSize());
  return run(point_to_point("send", tensors, dst), tensors, [&](Completion&) {
    Tensors sent = as_known(ContiguousCopies().sent(tensors));
    for (auto& tensor : sent) tensor = tensor.cpu();
    return ProcessGroupGloo::send(sent, dst, tag);
  });
}

GlooBackend::WorkPtr GlooBackend::recv(Tensors& tensors, int src, int tag) {
  if (in_monitored_barrier_) return ProcessGroupGloo::recv(tensors, src, tag);
  check_tensors("recv", tensors);
  check_can_be_written("recv", tensors);
  check_peer("recv", src, getRank(), getSize());
  return run(point_to_point("recv", tensors, src), {}, [&](Completion& completion) {
    auto received = received_on_host(tensors, completion);
    return ProcessGroupGloo::recv(received, src, tag);
  });
}

GlooBackend::WorkPtr GlooBackend::recvAnysource(Tensors& tensors, int tag) {
  check_tensors("recv", tensors);
  // The engine would make the sender wait for ever.
  TORCH_CHECK_VALUE(
      tensors[0].numel() > 0,
      "[cohort] recv from any source needs a tensor with elements on Gloo; name the source to receive none");
  return run(point_to_point("recv", tensors, /*peer=*/-1), {}, [&](Completion& completion) {
    auto received = received_on_host(tensors, completion);
    return ProcessGroupGloo::recvAnysource(received, tag);
  });
}

GlooBackend::WorkPtr GlooBackend::barrier(const c10d::BarrierOptions& opts) {
  return run(describe("barrier", {}, {}), {}, [&](Completion&) { return ProcessGroupGloo::barrier(opts); });
}

void GlooBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  auto operation = describe("monitored_barrier", {}, {});
  operation.sequence = ++num_collectives_;
  watch_->starting(operation);
  in_monitored_barrier_ = true;
  try {
    ProcessGroupGloo::monitoredBarrier(opts, wait_all_ranks);
    in_monitored_barrier_ = false;
  } catch (const std::exception& error) {
    in_monitored_barrier_ = false;
    throw_failure({.causes = {text_of(error)}});
  }
}

}  // namespace cohort::comm
