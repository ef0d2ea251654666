#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cohort/shm/report/formats.h"
#include "cohort/shm/trace/call.h"

namespace cohort::shm {
namespace {

/// Returns the number of elements of each rank's part, if all parts are equal.
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

/// Returns the part that must be the same on all ranks, in the words of mismatch errors. Sizes of an all_to_all may differ.
std::string common_part(const CallRecord& record) {
  Call call{.kind = record.kind, .dtype = record.dtype, .reduce_op = record.reduce_op, .root = record.root};
  call.count = common_count(record).value_or(0);
  return describe(call);
}

const CallRecord* find_collective(const RankTrace& rank, uint64_t collective_seq_id) {
  const auto found = std::find_if(rank.records.begin(), rank.records.end(), [&](const CallRecord& record) {
    return !record.is_p2p && record.collective_seq_id == collective_seq_id;
  });
  return found == rank.records.end() ? nullptr : &*found;
}

struct CallRange {
  uint64_t first = std::numeric_limits<uint64_t>::max();
  uint64_t last = 0;
};

CallRange collectives_of(const RankTrace& rank) {
  CallRange range;
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
  if (record.kind == OpKind::kAllToAll) {
    return fmt::format("all_to_all of {} {} for {}", record.num_inputs, name_of(record.dtype), record.num_outputs);
  }
  if (!record.is_p2p) return common_part(record);
  const std::string peer = record.root < 0 ? "any rank" : fmt::format("rank {}", record.root);
  const bool sends = record.kind == OpKind::kSend;
  return fmt::format("{} {} {} of {} {}, tag {}", name_of(record.kind), sends ? "to" : "from", peer,
                     sends ? record.num_inputs : record.num_outputs, name_of(record.dtype), record.tag);
}

std::optional<Difference> find_difference(const GroupTrace& group) {
  // A rank that has left may be any number of operations behind; that is not a difference.
  uint64_t first = std::numeric_limits<uint64_t>::max();
  uint64_t last = 0;
  for (const RankTrace& rank : group.ranks) {
    const CallRange range = collectives_of(rank);
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
