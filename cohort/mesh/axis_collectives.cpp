#include "cohort/mesh/axis_collectives.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/mesh/shard.h"

namespace cohort::mesh {
namespace {

ReduceOp::RedOpType reduce_op_named(const std::string& name) {
  static const std::map<std::string, ReduceOp::RedOpType> ops = {
      {"sum", ReduceOp::SUM},         {"avg", ReduceOp::AVG},   {"min", ReduceOp::MIN}, {"max", ReduceOp::MAX},
      {"product", ReduceOp::PRODUCT}, {"band", ReduceOp::BAND}, {"bor", ReduceOp::BOR}, {"bxor", ReduceOp::BXOR}};
  const auto found = ops.find(name);
  TORCH_CHECK_VALUE(found != ops.end(), "[cohort] Partial(", name, ") is not a reduction that this library knows");
  return found->second;
}

IndexRanges ranges_of(const AxisOf& line, const Placement& shard, int64_t size, int64_t index) {
  return shard_ranges(shard, size, line.num_ranks(), index);
}

// Whether all shards have the same number of elements and no gaps.
bool is_even(const AxisOf& line, const Placement& shard, int64_t size) {
  return shard.is_shard() && size % line.num_ranks() == 0;
}

bool is_in_order(const AxisOf& line) {
  const auto order = line.order();
  return std::is_sorted(order.begin(), order.end());
}

// Reshapes [.., ranks * n, ..] to [ranks, .., n, ..].
at::Tensor shards_in_front(const at::Tensor& full, int64_t dim, int64_t num_ranks) {
  auto sizes = full.sizes().vec();
  sizes[dim] /= num_ranks;
  sizes.insert(sizes.begin() + dim, num_ranks);
  return full.reshape(sizes).movedim(dim, 0).contiguous();
}

// Undoes shards_in_front().
at::Tensor shards_along(const at::Tensor& parts, int64_t dim) { return parts.movedim(0, dim).flatten(dim, dim + 1); }

// Copies `part`, the elements of `ranges` one after the other, to their places in `full`.
void put_ranges(const at::Tensor& full, int64_t dim, const IndexRanges& ranges, const at::Tensor& part) {
  int64_t passed = 0;
  for (const auto& range : ranges) {
    full.narrow(dim, range.begin, range.size()).copy_(part.narrow(dim, passed, range.size()));
    passed += range.size();
  }
}

std::vector<int64_t> with_size(c10::IntArrayRef sizes, int64_t dim, int64_t size) {
  auto changed = sizes.vec();
  changed[dim] = size;
  return changed;
}

int64_t product_of(c10::IntArrayRef sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

// Whether "max" or "min" may lose a NaN: it should win, but not every backend sees to that.
bool loses_nan(const std::string& reduce_op, const at::Tensor& tensor) {
  return (reduce_op == "max" || reduce_op == "min") && tensor.is_floating_point();
}

}  // namespace

std::vector<int64_t> AxisOf::order() const {
  if (mesh_) return mesh_->group_order(axis_);
  std::vector<int64_t> order(group_->getSize());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

at::Tensor gather_axis(const AxisOf& line, const Placement& shard, const at::Tensor& local, int64_t size) {
  const int64_t dim = shard.dim();
  const auto options = local.options().memory_format(std::nullopt);
  const auto shape = with_size(local.sizes(), dim, size);
  if (product_of(shape) == 0) return at::empty(shape, options);
  const int64_t padded_size = padded_shard_size(shard, size, line.num_ranks());
  const auto padded = pad_tensor(local, dim, padded_size - local.size(dim)).contiguous();
  auto sizes = padded.sizes().vec();
  sizes.insert(sizes.begin(), line.num_ranks());
  const auto parts = at::empty(sizes, options);
  all_gather_single(parts, padded, {.group = line.group()});
  if (is_even(line, shard, size) && is_in_order(line)) return shards_along(parts, dim);
  const auto full = at::empty(shape, options);
  const auto order = line.order();
  for (int64_t rank = 0; rank < line.num_ranks(); ++rank) {
    put_ranges(full, dim, ranges_of(line, shard, size, order[rank]), parts[rank]);
  }
  return full;
}

at::Tensor own_shard(const AxisOf& line, const Placement& shard, const at::Tensor& full) {
  const auto ranges = ranges_of(line, shard, full.size(shard.dim()), line.own_index());
  return take_ranges(full, shard.dim(), ranges).clone(at::MemoryFormat::Contiguous);
}

at::Tensor reduce_axis(const AxisOf& line, const std::string& reduce_op, const at::Tensor& local) {
  const auto op = reduce_op_named(reduce_op);
  if (loses_nan(reduce_op, local) && local.numel() > 0) {  // reduces a flag for NaN along with each value
    const auto is_nan = local.isnan();
    const bool is_max = reduce_op == "max";
    const auto flags = is_nan.to(local.scalar_type());
    const auto both = at::stack({local.masked_fill(is_nan, 0), is_max ? flags : flags.neg()});
    all_reduce(both, {.op = op, .group = line.group()});
    return both[0].masked_fill(both[1].ne(0), std::numeric_limits<double>::quiet_NaN());
  }
  auto result = local.clone(at::MemoryFormat::Contiguous);
  if (result.numel() > 0) all_reduce(result, {.op = op, .group = line.group()});
  return result;
}

at::Tensor reduce_scatter_axis(const AxisOf& line, const std::string& reduce_op, const Placement& shard,
                               const at::Tensor& local) {
  if (loses_nan(reduce_op, local)) return own_shard(line, shard, reduce_axis(line, reduce_op, local));
  const bool is_average = reduce_op == "avg";
  const auto op = is_average ? ReduceOp::SUM : reduce_op_named(reduce_op);
  const int64_t dim = shard.dim(), size = local.size(dim);
  const int64_t own_size = num_indices(ranges_of(line, shard, size, line.own_index()));
  const int64_t padded_size = padded_shard_size(shard, size, line.num_ranks());
  at::Tensor parts;
  if (is_even(line, shard, size) && is_in_order(line)) {
    parts = shards_in_front(local, dim, line.num_ranks());
  } else {
    TensorList padded;
    for (const int64_t index : line.order()) {
      const auto part = take_ranges(local, dim, ranges_of(line, shard, size, index));
      padded.push_back(pad_tensor(part, dim, padded_size - part.size(dim)));
    }
    parts = at::stack(padded);
  }
  const auto result = at::empty(parts.sizes().slice(1), parts.options());
  if (result.numel() > 0) reduce_scatter_single(result, parts, {.op = op, .group = line.group()});
  if (is_average) result.div_(line.num_ranks());
  return unpad_tensor(result, dim, padded_size - own_size).contiguous();
}

at::Tensor exchange_axis(const AxisOf& line, const Placement& from, const Placement& to, const at::Tensor& local,
                         int64_t size) {
  const int64_t to_size = local.size(to.dim());
  if (local.numel() > 0 && is_even(line, from, size) && is_even(line, to, to_size) && is_in_order(line)) {
    const auto sent = shards_in_front(local, to.dim(), line.num_ranks());
    const auto received = at::empty_like(sent);
    all_to_all_single(received, sent, {}, {}, {.group = line.group()});
    return shards_along(received, from.dim());
  }
  const auto of = [&](const Placement& shard, int64_t full_size, int64_t index) {
    return ranges_of(line, shard, full_size, index);
  };
  const auto order = line.order();
  std::vector<at::Tensor> sent;
  std::vector<int64_t> sent_sizes, received_sizes;
  std::vector<std::vector<int64_t>> shapes;
  const auto own_to = of(to, to_size, line.own_index());
  for (const int64_t index : order) {
    sent.push_back(take_ranges(local, to.dim(), of(to, to_size, index)).reshape({-1}));
    sent_sizes.push_back(sent.back().numel());
    auto shape = with_size(local.sizes(), from.dim(), num_indices(of(from, size, index)));
    shape[to.dim()] = num_indices(own_to);
    received_sizes.push_back(product_of(shape));
    shapes.push_back(std::move(shape));
  }
  auto shape = with_size(local.sizes(), from.dim(), size);
  const bool is_empty = product_of(shape) == 0;
  shape[to.dim()] = num_indices(own_to);
  auto result = at::empty(shape, local.options().memory_format(std::nullopt));
  if (is_empty) return result;
  auto received = at::empty({result.numel()}, result.options());
  all_to_all_single(received, at::cat(sent), received_sizes, sent_sizes, {.group = line.group()});
  const auto pieces = received.split_with_sizes(received_sizes);
  for (size_t rank = 0; rank < order.size(); ++rank) {
    put_ranges(result, from.dim(), of(from, size, order[rank]), pieces[rank].view(shapes[rank]));
  }
  return result;
}

}  // namespace cohort::mesh
