#include "benchmarks/collectives/collective_traffic.h"

#include <utility>

namespace cohort::bench {
namespace {

using Moves = std::vector<Move>;

struct Shape {
  size_t whole;
  size_t part;
  size_t rest;
  int num_others;
  bool is_root;
};

Move stage(size_t from, size_t num_bytes) { return {.num_bytes = num_bytes, .reads = {from}, .num_staged_writes = 1}; }
Move unstage(size_t to, size_t num_bytes) { return {.num_bytes = num_bytes, .num_staged_reads = 1, .writes = {to}}; }
Move combine(size_t from, size_t num_bytes, int num_others) {
  return {.num_bytes = num_bytes, .reads = {from}, .num_staged_reads = num_others};
}

std::vector<size_t> starts(size_t stride, int first, int end) {
  std::vector<size_t> offsets;
  for (int i = first; i < end; ++i) offsets.push_back(stride * static_cast<size_t>(i));
  return offsets;
}

Moves all_reduce(const Shape& shape, TrafficPlan plan) {
  if (plan == TrafficPlan::kWhole) {
    Move last = combine(0, shape.whole, shape.num_others);
    last.writes = {0};
    return {stage(0, shape.whole), std::move(last)};
  }
  Move own = combine(shape.rest, shape.part, shape.num_others);
  own.writes = {shape.rest};
  own.num_staged_writes = 1;
  return {stage(0, shape.rest), std::move(own), unstage(0, shape.rest)};
}

Moves reduce(const Shape& shape, TrafficPlan plan) {
  if (plan == TrafficPlan::kWhole) {
    if (!shape.is_root) return {stage(0, shape.whole)};
    Move last = combine(0, shape.whole, shape.num_others);
    last.writes = {0};
    return {std::move(last)};
  }
  Move own = combine(shape.rest, shape.part, shape.num_others);
  if (!shape.is_root) {
    own.num_staged_writes = 1;
    return {stage(0, shape.rest), std::move(own)};
  }
  own.writes = {shape.rest};
  return {stage(0, shape.rest), std::move(own), unstage(0, shape.rest)};
}

Moves in_private_memory(Op op, const Shape& shape, TrafficPlan plan) {
  switch (op) {
    case Op::kAllReduce:
      return all_reduce(shape, plan);
    case Op::kReduce:
      return reduce(shape, plan);
    case Op::kBroadcast:
      return {shape.is_root ? stage(0, shape.whole) : unstage(0, shape.whole)};
    case Op::kSendRecv:
      return {stage(0, shape.whole), unstage(0, shape.whole)};
    case Op::kReduceScatter: {
      Move own = combine(shape.rest, shape.part, shape.num_others);
      own.writes = {0};
      return {stage(0, shape.rest), std::move(own)};
    }
    case Op::kAllGather:
      return {{.num_bytes = shape.part, .reads = {0}, .writes = {shape.rest}, .num_staged_writes = 1},
              unstage(0, shape.rest)};
    case Op::kAllToAll:
      return {{.num_bytes = shape.part, .reads = {shape.rest}, .writes = {shape.rest}},
              stage(0, shape.rest),
              unstage(0, shape.rest)};
    case Op::kBarrier:
      break;
  }
  return {};
}

// Uses buffers of this rank for the others' tensors, as they are equally far away.
Moves in_shared_memory(Op op, const Shape& shape, int num_ranks) {
  const auto all = starts(shape.part, 0, num_ranks);
  switch (op) {
    case Op::kAllReduce:
      return {{.num_bytes = shape.part, .reads = all, .writes = all}};
    case Op::kReduce:
    case Op::kReduceScatter:
      return {{.num_bytes = shape.part, .reads = all, .writes = {0}}};
    case Op::kBroadcast:
      return {{.num_bytes = shape.part, .reads = {0}, .writes = starts(shape.part, 1, num_ranks)}};
    case Op::kAllGather:
      return {{.num_bytes = shape.part, .reads = {0}, .writes = all}};
    case Op::kAllToAll:
    case Op::kSendRecv:
      return {{.num_bytes = shape.whole, .reads = {0}, .writes = {0}}};
    case Op::kBarrier:
      break;
  }
  return {};
}

}  // namespace

std::vector<Move> plan_traffic(const CollectiveCase& what, int rank, TrafficPlan plan) {
  const size_t part = what.num_bytes / static_cast<size_t>(what.num_ranks);
  const Shape shape{.whole = what.num_bytes,
                    .part = part,
                    .rest = part * static_cast<size_t>(what.num_ranks - 1),
                    .num_others = what.num_ranks - 1,
                    .is_root = rank == 0};
  return what.memory != Memory::kPrivate ? in_shared_memory(what.op, shape, what.num_ranks)
                                         : in_private_memory(what.op, shape, plan);
}

bool has_two_plans(const CollectiveCase& what) {
  return what.memory == Memory::kPrivate && (what.op == Op::kAllReduce || what.op == Op::kReduce);
}

Traffic count_traffic(const std::vector<Move>& moves) {
  Traffic total;
  for (const Move& move : moves) {
    total.loaded += move.num_bytes * (move.reads.size() + static_cast<size_t>(move.num_staged_reads));
    total.stored += move.num_bytes * (move.writes.size() + static_cast<size_t>(move.num_staged_writes));
  }
  return total;
}

}  // namespace cohort::bench
