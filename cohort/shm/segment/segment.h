/// Segment: the memory that the ranks of one group share, and the places of its parts.
///
///     header | a block per rank: mailboxes, process, first failure | trace areas | channels | small slots | staging slots
///
/// Pages are allocated when they are first written. Everything is zero at first.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cohort/shm/arena/peer_arenas.h"
#include "cohort/shm/trace/call.h"
#include "cohort/shm/transfer/waiting.h"

namespace cohort::shm {

/// A rank's message in a round. It is one cache line, so that a small payload arrives together with the counter that announces
/// it. The counter's word is the rank's history: see mix() in call.h.
struct alignas(64) Mailbox {
  Counter round;
  /// The rank's call: see call.h. Written before `round` is increased, read after it; the same holds for the payload.
  uint64_t signature[2];
  std::byte payload[32];

  Signature called() const { return {{signature[0], signature[1]}}; }
};
static_assert(sizeof(Mailbox) == 64);

/// Written before the group is complete, constant afterwards.
struct PeerRecord {
  int32_t pid;
  int32_t tid;
  uint64_t started_at;    ///< start of the process, in clock ticks since boot
  double quota;           ///< cores that its cgroup allows; 0 means no limit
  uint64_t affinity[16];  ///< the first 1024 cores
  char host[64];
  ArenaAddress arena;
};

constexpr size_t kFailureTextBytes = 1024;

/// [Note: running ahead] A rank that only sends something small does not wait for the receivers, so ranks need not be in the same
/// round. No rank enters round k before all have reached k - kMostAhead, and before it does, it has compared their histories up
/// to there with its own. So the content of a rank's round k stays until all others have reached k + kMostAhead, as it is
/// overwritten in k + kRounds; by then they have read and compared it. Staging slots come in two sets, by the round's parity: a
/// rank that uses them has waited until all had reached the round before.
constexpr size_t kRounds = 16;
constexpr uint64_t kMostAhead = 8;
/// The limit for small messages. More would not stay in the caches, over all rounds.
constexpr size_t kSmallBytes = size_t{2} << 10;

struct alignas(64) RankBlock {
  /// See Segment::mailbox().
  Mailbox mailboxes[kRounds];
  /// The round that this rank is about to enter in any case. A hint that orders nothing; see Group::meet_soon().
  std::atomic<uint64_t> coming;
  /// kJoined, then kLeft. Paired with: Lookouts of the others.
  std::atomic<uint32_t> presence;
  /// The process id that rank 0 knows of a rank that has not written its record yet; 0 if unknown.
  std::atomic<int32_t> connected_pid;
  PeerRecord peer;
  /// Written before SegmentHeader::failed_rank names this rank.
  uint32_t failure_kind;
  char failure_text[kFailureTextBytes];
};
enum Presence : uint32_t { kAbsent = 0, kJoined = 1, kLeft = 2 };

struct alignas(64) SegmentHeader {
  uint64_t magic;
  uint32_t version;
  int32_t world_size;
  uint64_t num_bytes;
  uint64_t slot_bytes;
  /// Rank + 1 of the first rank that failed; 0 if none has. Set with compare-exchange, which orders the text before it.
  std::atomic<uint32_t> failed_rank;
  /// Wakes ranks that sleep until all, or one, have reached a round.
  Bell bell;
};

/// Sizes and places, the same on all ranks.
struct Layout {
  int world_size = 1;
  size_t slot_bytes = 0;

  size_t block_offset(int rank) const;
  /// Each rank has Trace::area_bytes().
  size_t trace_offset(int rank) const;
  /// Each ordered pair has Exchange::channel_bytes().
  size_t channel_offset(int source, int destination) const;
  /// Each rank has kSmallBytes for each of kRounds.
  size_t small_slot_offset(int rank, uint64_t round) const;
  /// Each rank has four slots: inputs and results, by parity.
  size_t slot_offset(int rank, int slot) const;
  size_t num_bytes() const;
};

/// A view of the mapped memory; does not own it.
class Segment {
 public:
  Segment(std::byte* base, Layout layout) : base_(base), layout_(layout) {}

  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }
  RankBlock& block(int rank) const { return *reinterpret_cast<RankBlock*>(base_ + layout_.block_offset(rank)); }
  std::byte* trace_area(int rank) const { return base_ + layout_.trace_offset(rank); }
  std::byte* channel(int source, int destination) const { return base_ + layout_.channel_offset(source, destination); }
  /// Rounds are not adjacent: a core that prefetches the next line would fetch the one that is written next.
  Mailbox& mailbox(int rank, uint64_t round) const { return block(rank).mailboxes[round * 5 % kRounds]; }
  std::byte* small_slot(int rank, uint64_t round) const { return base_ + layout_.small_slot_offset(rank, round); }
  std::byte* slot(int rank, int slot) const { return base_ + layout_.slot_offset(rank, slot); }
  const Layout& layout() const { return layout_; }

 private:
  std::byte* base_;
  Layout layout_;
};

}  // namespace cohort::shm
