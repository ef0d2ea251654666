/// Channel: how one rank hands messages to one other rank.
///
///     receiver's words | sender's words | joint copy | refusal | numbers taken | 32 offers with 224 bytes each | ring of chunks
///
/// The sender offers messages in order, numbered from 1: number n lies in offer (n - 1) % 32. Messages of up to kInlineBytes
/// travel inside their offer. Of the larger ones the receiver accepts one at a time: that one streams through the ring, or, if
/// it lies where both ranks reach it, is copied to its place at once (joint_copy.h), and noted as taken.
///
///     sender    offer 1 (4 B), offer 2 (1 MiB)                      chunk chunk . chunk ...
///     receiver                      takes 1, releases, accepts 2          takes chunk, chunk ...
///
/// Every word has one writer. Its partner is the other end, which loads it: each store publishes the plain bytes written
/// before it. All are sequentially consistent, more than publishing needs, because a store is also one half of the agreement
/// with a sleeping reader (see Bell). Nothing read from here is believed beyond the bounds of this process's own memory.
///
/// Thread-safety: each end belongs to one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "cohort/shm/terms/place.h"
#include "cohort/shm/terms/types.h"
#include "cohort/shm/transfer/bell.h"
#include "cohort/shm/transfer/joint_copy.h"

namespace cohort::shm {

constexpr uint64_t kNumOffers = 32;
constexpr size_t kInlineBytes = 224;
constexpr uint64_t kNumChunks = 2;
/// The largest; messages of less than 128 KiB go in smaller ones.
constexpr size_t kChunkBytes = size_t{64} << 10;

/// What a message says about itself.
struct MessageHeader {
  uint64_t num_bytes = 0;
  int32_t tag = 0;
  DType dtype = DType::kBytes;
  /// Of one that is not inline: where it lies, if the receiver may read it there.
  Place place = {};
  bool is_inline() const { return num_bytes <= kInlineBytes; }
};

/// A message that the receiver did not take because it waits for another size or dtype.
struct Refusal {
  MessageHeader sent;
  uint64_t expected_bytes = 0;
  DType expected_dtype = DType::kBytes;
};

/// The message that the receiver takes.
struct Accepted {
  uint64_t number = 0;  ///< 0: none yet
  bool is_joint = false;
  /// Where it goes, if the sender may write there.
  Place target = {};
};

/// In shared memory, zero at first; see channel.cpp.
struct ChannelMemory;
size_t channel_memory_bytes();

/// The source's end.
class ChannelSource {
 public:
  /// `receiver_bell` is rung after every change.
  ChannelSource(std::byte* memory, Bell* receiver_bell);

  bool has_room() const;
  /// Requires has_room(). Returns the message's number. An inline message is copied now.
  uint64_t offer(const MessageHeader& header, const void* data);
  /// Once a later message is accepted, the target may be that one's.
  Accepted accepted() const;
  /// Copies chunks of the accepted message, from byte `num_done` on, while there is room and not more than the ring holds.
  /// Returns their bytes.
  size_t produce(const std::byte* data, size_t num_bytes, size_t num_done);
  /// The number of the next message that has been taken from where it lies; 0: none.
  uint64_t next_taken();
  JointCopyMemory& joint() const;
  /// After a change of joint().
  void ring() { bell_->ring(); }
  /// The first one.
  std::optional<Refusal> refusal() const;

 private:
  ChannelMemory* memory_;
  Bell* bell_;
  uint64_t num_offered_ = 0;
  uint64_t num_produced_ = 0;
  uint64_t num_taken_seen_ = 0;
};

/// The destination's end.
class ChannelDestination {
 public:
  ChannelDestination(std::byte* memory, Bell* sender_bell);

  /// The next message not yet seen; its number is num_seen() afterwards.
  std::optional<MessageHeader> next();
  uint64_t num_seen() const { return num_seen_; }
  /// The bytes of an inline message. Requires: seen, not released, num_bytes <= kInlineBytes.
  void read_inline(uint64_t number, void* data, size_t num_bytes) const;
  /// The sender may overwrite all offers up to this one.
  void release(uint64_t number);
  uint64_t num_released() const { return num_released_; }
  /// Lets the sender stream this message, or help to copy it. Requires that the one accepted before has been consumed or taken.
  void accept(const Accepted& message);
  /// False: the sender has not seen yet what was noted. Such messages can be streamed.
  bool can_note_taken() const;
  /// Tells the sender that this message has been taken. Requires can_note_taken() when it was accepted.
  void note_taken(uint64_t number);
  JointCopyMemory& joint() const;
  /// Copies what lies in the ring of the accepted message, to byte `num_done` and on, not more than the ring holds. Returns
  /// how many bytes.
  size_t consume(std::byte* data, size_t num_bytes, size_t num_done);
  /// The first refusal counts.
  void refuse(const Refusal& refusal);

 private:
  ChannelMemory* memory_;
  Bell* bell_;
  uint64_t num_seen_ = 0;
  uint64_t num_released_ = 0;
  uint64_t num_consumed_ = 0;
  uint64_t num_taken_ = 0;
};

}  // namespace cohort::shm
