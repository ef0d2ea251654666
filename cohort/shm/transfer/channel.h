/// Channel: passes messages from one rank to another.
///
///     receiver's words | sender's words | joint copy | refusal | numbers taken | 32 offers with 224 bytes each | ring of chunks
///
/// The sender offers messages in order, numbered from 1: number n is in offer (n - 1) % 32. Messages of up to kInlineBytes are
/// inside their offer. Of the larger ones the receiver accepts one at a time: that message is streamed through the ring, or, if
/// it is in memory that both ranks reach, copied directly to its place (joint_copy.h) and noted as taken.
///
///     sender    offer 1 (4 B), offer 2 (1 MiB)                      chunk chunk . chunk ...
///     receiver                      takes 1, releases, accepts 2          takes chunk, chunk ...
///
/// Every word has one writer, and is paired with the other end, which loads it: each store publishes the plain bytes written
/// before it. All are sequentially consistent, more than publishing needs, because a store is also one half of the protocol with
/// a sleeping reader (see Bell). Everything read from here is checked against the bounds of this process's own memory.
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
/// The largest chunk. Messages of less than 128 KiB use smaller ones.
constexpr size_t kChunkBytes = size_t{64} << 10;

/// The description of a message.
struct MessageHeader {
  uint64_t num_bytes = 0;
  int32_t tag = 0;
  DType dtype = DType::kBytes;
  /// The place of a message that is not inline, if the receiver may read it there.
  Place place = {};
  bool is_inline() const { return num_bytes <= kInlineBytes; }
};

/// A message that the receiver refused because it waits for another size or dtype.
struct Refusal {
  MessageHeader sent;
  uint64_t expected_bytes = 0;
  DType expected_dtype = DType::kBytes;
};

/// The message that the receiver accepts.
struct Accepted {
  uint64_t number = 0;  ///< 0 means none yet
  bool is_joint = false;
  /// The destination, if the sender may write there.
  Place target = {};
};

/// In shared memory, zero at first; see channel.cpp.
struct ChannelMemory;
size_t channel_memory_bytes();

/// The source's end.
class ChannelSource {
 public:
  /// Rings `receiver_bell` after every change.
  ChannelSource(std::byte* memory, Bell* receiver_bell);

  bool has_room() const;
  /// Offers a message and returns its number. Requires has_room(). Copies an inline message now.
  uint64_t offer(const MessageHeader& header, const void* data);
  /// Returns the accepted message. Once a later message is accepted, the target may be that message's.
  Accepted accepted() const;
  /// Copies chunks of the accepted message, from byte `num_done` on, while there is space, and at most as many as the ring holds.
  /// Returns the number of bytes.
  size_t produce(const std::byte* data, size_t num_bytes, size_t num_done);
  /// Returns the number of the next message that was copied directly; 0 if there is none.
  uint64_t next_taken();
  JointCopyMemory& joint() const;
  /// Rings the bell. Call it after a change of joint().
  void ring() { bell_->ring(); }
  /// Returns the first refusal.
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

  /// Returns the next message not yet seen; its number is num_seen() afterwards.
  std::optional<MessageHeader> next();
  uint64_t num_seen() const { return num_seen_; }
  /// Reads the bytes of an inline message. Requires that it was seen and not released, and num_bytes <= kInlineBytes.
  void read_inline(uint64_t number, void* data, size_t num_bytes) const;
  /// Lets the sender overwrite all offers up to this one.
  void release(uint64_t number);
  uint64_t num_released() const { return num_released_; }
  /// Lets the sender stream this message, or help to copy it. Requires that the previously accepted one has been consumed or
  /// taken.
  void accept(const Accepted& message);
  /// Returns false while the sender has not seen the messages noted before. Messages can then be streamed.
  bool can_note_taken() const;
  /// Tells the sender that this message has been taken. Requires can_note_taken() when it was accepted.
  void note_taken(uint64_t number);
  JointCopyMemory& joint() const;
  /// Copies chunks of the accepted message from the ring to byte `num_done` and on, at most as many as the ring holds. Returns
  /// the number of bytes.
  size_t consume(std::byte* data, size_t num_bytes, size_t num_done);
  /// Refuses a message. Only the first refusal counts.
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
