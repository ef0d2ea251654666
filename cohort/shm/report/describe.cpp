#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "cohort/shm/report/formats.h"

namespace cohort::shm {
namespace {

/// Elements of the part that every rank has, where every rank has an equal one.
std::optional<uint64_t> common_count(const CallRecord& record) {
  switch (record.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kAllGather:
    case OpKind::kGather:
      return record.num_inputs;
    case OpKind::kScatter:
    case OpKind::kReduceScatter:
    case OpKind::kAllocate:
      return record.num_outputs;
    case OpKind::kBroadcast:
      return std::max(record.num_inputs, record.num_outputs);
    default:
      return std::nullopt;
  }
}

std::string describe_place(const CallRecord& record) {
  switch (record.kind) {
    case OpKind::kBroadcast:
    case OpKind::kScatter:
      return fmt::format(" from rank {}", record.root);
    case OpKind::kReduce:
    case OpKind::kGather:
      return fmt::format(" to rank {}", record.root);
    case OpKind::kSend:
      return fmt::format(" to rank {}, tag {}", record.root, record.tag);
    case OpKind::kRecv:
      return record.root < 0 ? fmt::format(" from any rank, tag {}", record.tag)
                             : fmt::format(" from rank {}, tag {}", record.root, record.tag);
    default:
      return "";
  }
}

std::string describe_size(const CallRecord& record) {
  if (record.kind == OpKind::kBarrier) return "";
  if (record.kind == OpKind::kAllToAll) {
    return fmt::format(" {} x {} -> {}", name_of(record.dtype), record.num_inputs, record.num_outputs);
  }
  const uint64_t count = common_count(record).value_or(std::max(record.num_inputs, record.num_outputs));
  return fmt::format(" {} x {}", name_of(record.dtype), count);
}

/// What must be the same on all ranks, as text. Sizes of an all_to_all may differ.
std::string common_part(const CallRecord& record) {
  if (record.kind == OpKind::kAllToAll) return fmt::format("all_to_all {}", name_of(record.dtype));
  return describe_call(record);
}

const CallRecord* find_collective(const RankTrace& rank, uint64_t collective_seq_id) {
  const auto found = std::find_if(rank.records.begin(), rank.records.end(), [&](const CallRecord& record) {
    return !record.is_p2p && record.collective_seq_id == collective_seq_id;
  });
  return found == rank.records.end() ? nullptr : &*found;
}

struct Range {
  uint64_t first = std::numeric_limits<uint64_t>::max();
  uint64_t last = 0;
};

Range collectives_of(const RankTrace& rank) {
  Range range;
  for (const CallRecord& record : rank.records) {
    if (record.is_p2p) continue;
    range.first = std::min(range.first, record.collective_seq_id);
    range.last = std::max(range.last, record.collective_seq_id);
  }
  return range;
}

Difference compare(const GroupTrace& group, uint64_t collective_seq_id) {
  Difference difference{.collective_seq_id = collective_seq_id, .parties = {}, .missing = {}};
  for (const RankTrace& rank : group.ranks) {
    const CallRecord* const record = find_collective(rank, collective_seq_id);
    if (record == nullptr) {
      const bool has_come_further = collectives_of(rank).last > collective_seq_id;
      if (!has_come_further && rank.presence != RankTrace::Presence::kLeft) difference.missing.push_back(rank.rank);
      continue;
    }
    const std::string call = common_part(*record);
    const auto party = std::find_if(difference.parties.begin(), difference.parties.end(),
                                    [&](const Difference::Party& other) { return other.call == call; });
    if (party == difference.parties.end()) {
      difference.parties.push_back({call, {rank.rank}});
    } else {
      party->ranks.push_back(rank.rank);
    }
  }
  return difference;
}

}  // namespace

std::string describe_call(const CallRecord& record) {
  std::string text = name_of(record.kind);
  if (record.reduce_op != ReduceOp::kNone) text += fmt::format(" {}", name_of(record.reduce_op));
  return text + describe_size(record) + describe_place(record);
}

std::string join_ranks(const std::vector<int>& ranks) { return fmt::format("{}", fmt::join(ranks, ", ")); }

std::optional<Difference> find_difference(const GroupTrace& group) {
  // A rank that has left may be any number of operations behind; that is no difference.
  uint64_t first = std::numeric_limits<uint64_t>::max();
  uint64_t last = 0;
  for (const RankTrace& rank : group.ranks) {
    const Range range = collectives_of(rank);
    last = std::max(last, range.last);
    if (rank.presence != RankTrace::Presence::kLeft) first = std::min(first, range.last == 0 ? 1 : range.first);
  }
  for (uint64_t number = first; number <= last; ++number) {
    Difference difference = compare(group, number);
    if (difference.parties.size() > 1 || !difference.missing.empty()) return difference;
  }
  return std::nullopt;
}

}  // namespace cohort::shm
