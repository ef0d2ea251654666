#include "cohort/comm/collectives/point_to_point.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "cohort/comm/collectives/arguments.h"
#include "cohort/comm/tensors/overlap.h"
#include "cohort/job/call_site.h"

namespace cohort {
namespace {

using comm::backend_for;
using comm::skips;
using comm::to_group_rank;

// Operations of a batch run side by side, so no other operation may use memory that one of them receives into.
void check_memory(const std::vector<P2POp>& operations) {
  const auto is_receive = [](const P2POp& operation) { return operation.kind == P2POp::Kind::kReceive; };
  TensorList received, sent;
  for (const auto& operation : operations) (is_receive(operation) ? received : sent).push_back(operation.tensor);
  if (!comm::overlap(received, sent)) return;
  for (size_t i = 0; i < operations.size(); ++i) {
    if (!is_receive(operations[i])) continue;
    comm::check_can_be_written("batch_isend_irecv", {operations[i].tensor});
    for (size_t j = 0; j < operations.size(); ++j) {
      TORCH_CHECK_VALUE(i == j || !comm::share_elements(operations[i].tensor, operations[j].tensor),
                        "[cohort] batch_isend_irecv: operation ", i, " receives into memory that operation ", j, " ",
                        is_receive(operations[j]) ? "receives into" : "sends from",
                        " at the same time; give each a tensor of its own");
    }
  }
}

void check_batch(const std::vector<P2POp>& operations) {
  TORCH_CHECK_VALUE(!operations.empty(), "[cohort] Invalid ``p2p_op_list``: it is empty");
  for (const auto& operation : operations) {
    TORCH_CHECK_VALUE(comm::resolve(operation.group) == comm::resolve(operations[0].group),
                      "All ops need to use the same group.");
  }
  check_memory(operations);
}

}  // namespace

WorkPtr isend(const at::Tensor& tensor, RankArgument dst, const PointToPointOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  if (skips(options.group, "isend")) return {};
  const auto backend = backend_for(options.group, tensor, "isend");
  const int peer = to_group_rank(options.group, dst);
  TORCH_CHECK_VALUE(peer != comm::resolve(options.group)->getRank(),
                    "Invalid destination rank: destination rank should not be the same as "
                    "the rank of the current process.");
  auto tensors = comm::sent_alone(*backend, tensor);
  return backend->send(tensors, peer, options.tag);
}

WorkPtr irecv(const at::Tensor& tensor, std::optional<RankArgument> src, const PointToPointOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  if (skips(options.group, "irecv")) return {};
  const auto backend = backend_for(options.group, tensor, "irecv");
  auto tensors = comm::written_alone(*backend, tensor, "irecv");
  if (!src) return backend->recvAnysource(tensors, options.tag);
  const int peer = to_group_rank(options.group, *src);
  TORCH_CHECK_VALUE(peer != comm::resolve(options.group)->getRank(),
                    "Invalid source rank: source rank should not be the same as the rank "
                    "of the current process.");
  return backend->recv(tensors, peer, options.tag);
}

void send(const at::Tensor& tensor, RankArgument dst, const PointToPointOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  if (const auto work = isend(tensor, dst, options)) work->wait();
}

int recv(const at::Tensor& tensor, std::optional<RankArgument> src, const PointToPointOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  const auto work = irecv(tensor, src, options);
  if (!work) return -1;
  work->wait();
  const int sender = src ? to_group_rank(options.group, *src) : work->sourceRank();
  return options.group ? get_global_rank(options.group, sender) : sender;
}

std::vector<WorkPtr> batch_isend_irecv(const std::vector<P2POp>& operations) {
  const job::CallSite site(__builtin_return_address(0));
  check_batch(operations);
  if (skips(operations[0].group, "batch_isend_irecv")) return {};
  const auto backend = backend_for(operations[0].group, operations[0].tensor, "batch_isend_irecv");
  const bool merges = backend->supportsCoalescing();
  if (merges) backend->startCoalescing();
  std::vector<WorkPtr> works;
  for (const auto& operation : operations) {
    const PointToPointOptions options{operation.group, operation.tag};
    works.push_back(operation.kind == P2POp::Kind::kSend ? isend(operation.tensor, operation.peer, options)
                                                         : irecv(operation.tensor, operation.peer, options));
  }
  if (!merges) return works;
  return {backend->endCoalescing()};
}

}  // namespace cohort
