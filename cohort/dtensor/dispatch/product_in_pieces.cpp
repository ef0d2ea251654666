#include "cohort/dtensor/dispatch/product_in_pieces.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "cohort/dtensor/wrapper/comm_log.h"
#include "cohort/mesh/axis_collectives.h"
#include "cohort/mesh/gathered_product.h"

namespace cohort::dtensor {
namespace {

// ---- The plan ----

// Returns the only axis on which the operand changes, if it changes there from a shard of its rows to Replicate().
std::optional<int64_t> gathered_axis(const Placements& now, const Placements& to, int64_t rows_dim,
                                     const DeviceMesh& mesh) {
  std::optional<int64_t> found;
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    const bool is_row_shard = now[axis].is_shard_like() && now[axis].dim() == rows_dim;
    if (now[axis] == to[axis]) {
      if (found && is_row_shard) return std::nullopt;  // a shard of what the gathered axis leaves
    } else if (found || !is_row_shard || !to[axis].is_replicate() || mesh.size(axis) == 1) {
      return std::nullopt;
    } else {
      found = axis;
    }
  }
  return found;
}

bool travels(const Call& call, const Plan& plan, size_t operand) {
  for (int64_t axis = 0; axis < call.mesh().ndim(); ++axis) {
    const auto& now = call.placement(operand, axis);
    if (!now.is_replicate() && !(now == plan.operands[operand][axis]) && call.mesh().size(axis) > 1) return true;
  }
  return false;
}

bool is_alike_for_all_rows(const Operand& added) { return added.dim() < 2 || added.sizes()[added.dim() - 2] == 1; }

// ---- The number of pieces ----

using WeakGroup = c10::weak_intrusive_ptr<c10d::ProcessGroup>;
using GroupOnDevice = std::pair<c10d::ProcessGroup*, c10::DeviceType>;

struct Decisions {
  std::mutex mutex;
  std::map<GroupOnDevice, std::pair<WeakGroup, int64_t>> by_group;
};

int64_t pieces_over(const Group& group, c10::DeviceType device) {
  static auto* const decisions = new Decisions;  // never destroyed: threads may still use it
  const GroupOnDevice key(group.get(), device);
  {
    const std::lock_guard lock(decisions->mutex);
    const auto known = decisions->by_group.find(key);
    if (known != decisions->by_group.end() && !known->second.first.expired()) return known->second.second;
  }
  const int64_t num_pieces = mesh::pieces_for_cores(group, device);
  std::vector<WeakGroup> gone;  // released without the lock
  const std::lock_guard lock(decisions->mutex);
  auto& by_group = decisions->by_group;
  for (auto it = by_group.begin(); it != by_group.end();) {
    const bool has_gone = it->second.first.expired();
    if (has_gone) gone.push_back(std::move(it->second.first));
    it = has_gone ? by_group.erase(it) : std::next(it);
  }
  by_group.insert_or_assign(key, std::pair(WeakGroup(group), num_pieces));
  return num_pieces;
}

// ---- The product ----

// The gathered rows are [outer, positions], and each rank has a chunk of the positions. For batched matrices, outer is the number
// of matrices.
struct Rows {
  int64_t outer;
  int64_t positions;
};

// Equal on all ranks of the axis. On other axes, and in another mesh of this shape, the numbers may differ.
std::optional<Rows> rows_of(const Call& call, const RowGather& gather, const Plan& plan) {
  const auto& first = call.operand(gather.operand);
  const auto sizes = local_sizes(call.mesh(), plan.operands[gather.operand], first.sizes());
  const int64_t num_rows = sizes[first.dim() - 2];
  const int64_t num_blocks = call.placement(gather.operand, gather.axis).split_factor();
  if (c10::multiply_integers(sizes) == 0 || num_rows % num_blocks != 0) return std::nullopt;
  if (first.dim() == 2) return Rows{num_blocks, num_rows / num_blocks};
  if (num_blocks > 1) return std::nullopt;
  return Rows{sizes[0], num_rows};
}

std::vector<base::IndexRange> shares_of(const mesh::AxisOf& line, int64_t num_positions) {
  std::vector<base::IndexRange> shares;
  for (const int64_t index : line.order()) {
    shares.push_back(mesh::chunk_range(num_positions, line.num_ranks(), index));
  }
  return shares;
}

// Runs the operation on rows [ranks, outer, positions, features], as matrices in the form of the second operand's.
at::Tensor run_on_rows(const Call& call, const Operand& first, const at::Tensor& rows) {
  const auto num_ranks = rows.size(0), outer = rows.size(1), positions = rows.size(2);
  if (first.dim() == 2) {
    return call.run_with(first.argument, rows.flatten(0, 2)).unflatten(0, {num_ranks, outer, positions});
  }
  const auto matrices = rows.transpose(0, 1).flatten(1, 2);
  return call.run_with(first.argument, matrices).unflatten(1, {num_ranks, positions}).transpose(0, 1);
}

}  // namespace

std::optional<RowGather> row_gather(const ProductArguments& product, const Call& call, const Plan& plan) {
  const auto index = call.operand_of(product.first);
  const auto& first = call.operand(index);
  if (!is_dtensor(first.tensor) || first.dim() < 2) return std::nullopt;
  for (size_t i = 0; i < call.operands().size(); ++i) {
    if (static_cast<int64_t>(i) != index && travels(call, plan, i)) return std::nullopt;
  }
  if (product.added >= 0 && !is_alike_for_all_rows(call.operand(call.operand_of(product.added)))) return std::nullopt;
  const int64_t rows_dim = first.dim() - 2;
  const auto& now = dtensor_data(first.tensor).placements;
  const auto axis = gathered_axis(now, plan.operands[index], rows_dim, call.mesh());
  return axis ? std::optional(RowGather{index, *axis}) : std::nullopt;
}

bool comes_in_pieces(const Call& call, const RowGather& gather, const Plan& plan) {
  const auto& tensor = call.operand(gather.operand).tensor;
  if (dtensor_data(tensor).is_transposed || is_gathered(tensor, plan.operands[gather.operand])) return false;
  return rows_of(call, gather, plan) && pieces_over(call.mesh().group(gather.axis), tensor.device().type()) > 1;
}

void multiply_in_pieces(Call& call, const RowGather& gather, const Plan& plan) {
  const auto& first = call.operand(gather.operand);
  const auto& data = dtensor_data(first.tensor);
  const auto& to = plan.operands[gather.operand];
  const mesh::AxisOf line{call.mesh(), gather.axis};
  const auto rows = *rows_of(call, gather, plan);
  const auto shares = shares_of(line, rows.positions);
  note_collective(&CommCounts::all_gather, call.mesh(), gather.axis, data.placements[gather.axis], to[gather.axis],
                  static_cast<int64_t>(data.local.nbytes()));
  const auto group = line.group();
  const auto own = data.local.reshape({rows.outer, shares[group->getRank()].size(), data.local.size(-1)});
  const mesh::GatherInPieces how{group, shares, pieces_over(group, first.tensor.device().type())};
  const auto made =
      mesh::multiply_while_gathering(how, own, [&](const at::Tensor& some) { return run_on_rows(call, first, some); });
  auto sizes = local_sizes(call.mesh(), to, first.sizes());
  note_gathered(first.tensor, made.gathered.view(sizes), to);
  sizes.back() = made.product.size(-1);
  call.finish({made.product.view(sizes)});
}

}  // namespace cohort::dtensor
