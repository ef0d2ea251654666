#include "cohort/shm/report/registry.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>

#include "cohort/base/system/env.h"
#include "cohort/base/system/host.h"
#include "cohort/shm/report/dump.h"
#include "cohort/shm/report/dump_signal.h"
#include "cohort/shm/report/read_trace.h"
#include "cohort/shm/segment/peer_record.h"

namespace cohort::shm {
namespace {

constexpr size_t kMaxPastGroups = 64;

struct Member {
  const TracedGroup* key;
  Segment segment;
  TracedGroupOptions options;
};

struct Registry {
  std::mutex mutex;
  /// The process that the other members belong to. A forked child has a copy with its parent's groups.
  pid_t owner = -1;
  std::vector<Member> members;
  /// Former groups, the oldest first. Empty unless a dump at exit was asked for.
  std::list<GroupTrace> past;
  /// The memory of the first of these groups that this process joined: the process's ranks are its ranks in that group. Null if
  /// it is gone.
  const void* first_memory = nullptr;
  std::vector<int> own_ranks;
};

/// Never destroyed, because a dump may run while the process ends.
Registry& registry() {
  static auto& instance = *new Registry;
  return instance;
}

RankTrace::Presence presence_of(const RankBlock& block) {
  switch (block.presence.load(std::memory_order_acquire)) {
    case kAbsent:
      return RankTrace::Presence::kAbsent;
    case kLeft:
      return RankTrace::Presence::kLeft;
    default:
      return is_gone(block.peer) ? RankTrace::Presence::kGone : RankTrace::Presence::kRuns;
  }
}

GroupTrace read_group(const Member& member, int64_t clock_offset_ns) {
  GroupTrace group;
  group.name = member.options.name;
  group.description = member.options.description;
  group.global_ranks = member.options.global_ranks;
  for (int rank = 0; rank < member.segment.layout().world_size; ++rank) {
    const RankBlock& block = member.segment.block(rank);
    RankTrace trace;
    trace.rank = rank;
    trace.presence = presence_of(block);
    if (trace.presence != RankTrace::Presence::kAbsent) {
      trace.pid = block.peer.pid;
      trace.host.assign(block.peer.host, ::strnlen(block.peer.host, sizeof block.peer.host));
    }
    trace.records = read_records(member.segment.trace_area(rank), clock_offset_ns);
    group.ranks.push_back(std::move(trace));
  }
  return group;
}

const void* memory_of(const Member& member) { return &member.segment.header(); }

/// Ranks that are threads each have a member for the same memory.
bool is_first_of_its_memory(const std::vector<Member>& members, size_t place) {
  return std::none_of(members.begin(), members.begin() + static_cast<std::ptrdiff_t>(place),
                      [&](const Member& other) { return memory_of(other) == memory_of(members[place]); });
}

}  // namespace

TracedGroup::TracedGroup(Segment segment, TracedGroupOptions options) {
  const int world_size = segment.layout().world_size;
  if (options.name.empty()) options.name = options.description;
  for (int rank = static_cast<int>(options.global_ranks.size()); rank < world_size; ++rank) {
    options.global_ranks.push_back(rank);
  }
  Registry& all = registry();
  {
    const std::lock_guard lock(all.mutex);
    const void* const memory = &segment.header();
    if (all.owner != ::getpid()) {
      all.owner = ::getpid();
      all.members.clear();
      all.past.clear();
    }
    if (all.members.empty()) {
      all.first_memory = memory;
      all.own_ranks.clear();
    }
    if (all.first_memory == memory) all.own_ranks.push_back(options.global_ranks[static_cast<size_t>(options.rank)]);
    all.members.push_back({this, segment, std::move(options)});
  }
  listen_to_dump_signal();
  if (wants_dump_at_exit()) dump_at_exit();
}

TracedGroup::~TracedGroup() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found =
      std::find_if(all.members.begin(), all.members.end(), [&](const Member& member) { return member.key == this; });
  if (all.owner != ::getpid() || found == all.members.end()) return;
  const Member member = *found;
  all.members.erase(found);
  const bool is_last = std::none_of(all.members.begin(), all.members.end(),
                                    [&](const Member& other) { return memory_of(other) == memory_of(member); });
  if (!is_last) return;
  // Another group may get the same address.
  if (all.first_memory == memory_of(member)) all.first_memory = nullptr;
  if (!wants_dump_at_exit()) return;
  all.past.push_back(read_group(member, wall_clock_offset_ns()));
  if (all.past.size() > kMaxPastGroups) all.past.pop_front();
}

ProcessTrace read_process_trace(const std::string& reason) {
  ProcessTrace trace;
  trace.pid = ::getpid();
  trace.host = base::host_name();
  trace.reason = reason;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const int64_t offset = wall_clock_offset_ns();
  trace.time_ns = monotonic_ns() + offset;
  if (all.owner != trace.pid) return trace;
  trace.groups.assign(all.past.begin(), all.past.end());
  for (size_t place = 0; place < all.members.size(); ++place) {
    if (is_first_of_its_memory(all.members, place)) trace.groups.push_back(read_group(all.members[place], offset));
  }
  trace.own_ranks = all.own_ranks;
  if (trace.own_ranks.size() == 1) {
    // The first group need not be the job's.
    const auto rank = base::env_int("RANK", 0, 1 << 24);
    if (rank && *rank) trace.own_ranks = {static_cast<int>(**rank)};
    trace.rank = trace.own_ranks.front();
  }
  return trace;
}

}  // namespace cohort::shm
