/// JointCopy: copies a message once, directly from its source to its destination, by both of its ranks.
///
/// Each end maps the other's memory. Both claim block after block with compare-exchange on one word, and copy what they have
/// claimed. So the faster one copies more, and a sender that is busy copies nothing. An end that cannot reach the other's memory
/// leaves all blocks to the other.
///
///     claims     nothing | message 7, 0 blocks ... message 7, all blocks | message 7, taken | message 9, 0 blocks ...
///                                                        closed, from any of them, for ever
///
/// Either end may give up the message, and use its memory for something else from then on. It closes the word first. Copies of
/// the other end after that have no effect: it claims no more blocks, and a message is taken by changing the same word, so a
/// message that was given up is never taken. A sender that was stopped may still write the one block that it had claimed: close()
/// tells.
///
/// Thread-safety: each end belongs to one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace cohort::shm {

/// In shared memory, zero at first.
struct JointCopyMemory {
  /// Both ends change it.
  alignas(64) std::atomic<uint64_t> claims;
  /// Written by the sender: the number of blocks that it has copied, of all messages.
  alignas(64) std::atomic<uint64_t> num_given;
};

class JointCopy {
 public:
  /// Up to this size two copies through a ring are as fast.
  static constexpr size_t kMostStreamed = size_t{16} << 10;
  static constexpr size_t kBlockBytes = size_t{32} << 10;
  /// The limit for one call of copy_some().
  static constexpr size_t kMostAtOnce = size_t{256} << 10;

  enum class End { kSender, kReceiver };
  /// One of the two is in the other end's memory; null if this end cannot reach it.
  struct Way {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    size_t num_bytes = 0;
    /// Keeps the other end's memory mapped.
    std::shared_ptr<const void> mapping = nullptr;
  };
  /// Whether a joint copy is worthwhile for the size, and the word can count its blocks.
  static bool suits(size_t num_bytes);

  /// `number` is the message's number in its channel.
  JointCopy(JointCopyMemory& memory, End end, uint64_t number, Way way);

  /// Begins on the receiver, before it tells the sender. Requires that the message before is taken. Returns false if the sender
  /// has given up.
  bool begin();
  /// Copies blocks that neither end has claimed. Returns the number of bytes.
  size_t copy_some();
  /// The least number of bytes that both have copied; the last block counts as complete.
  size_t num_copied() const;
  /// Takes the message on the receiver. Returns true if all blocks are copied, and the sender had not given up. From then on the
  /// sender may use its memory for something else.
  bool take();
  /// Gives up on the receiver. Returns true if the sender may still be writing a block; false if it is already closed.
  bool close();
  /// Gives up all offers of the sender.
  static void close(JointCopyMemory& memory);

 private:
  std::optional<uint64_t> claim();
  /// Whether the message is neither taken nor given up.
  bool is_open(uint64_t word) const;
  uint64_t num_blocks() const { return (way_.num_bytes + kBlockBytes - 1) / kBlockBytes; }
  uint64_t num_given() const { return memory_.num_given.load() - num_given_before_; }

  JointCopyMemory& memory_;
  End end_;
  uint64_t number_;
  Way way_;
  uint64_t num_own_ = 0;  ///< blocks that this end has copied
  uint64_t num_given_before_ = 0;
};

}  // namespace cohort::shm
