/// JointCopy: a message that is copied once, from where it lies to where it goes, by both of its ranks.
///
/// Each end maps the other's memory. They claim block after block by compare-exchange on one word, and copy what they have
/// claimed. So the faster one copies more, and a sender that has no time copies nothing. An end that cannot reach
/// the other's memory leaves all to the other.
///
///     claims     nothing | message 7, 0 blocks ... message 7, all blocks | message 7, taken | message 9, 0 blocks ...
///                                                        closed, from any of them, for ever
///
/// Either end may give the message up, and use its memory for something else from then on. It closes the word first. What the
/// other copies after that counts for nothing: it claims no more blocks, and a message is taken by changing the same word, so
/// one that was given up never is. A sender that was stopped may still write the one block that it had claimed: close() tells.
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
  /// The sender's: blocks that it has copied, of all messages.
  alignas(64) std::atomic<uint64_t> num_given;
};

class JointCopy {
 public:
  /// Up to here two copies through a ring are as fast.
  static constexpr size_t kMostStreamed = size_t{16} << 10;
  static constexpr size_t kBlockBytes = size_t{32} << 10;
  /// What one call of copy_some() copies at most.
  static constexpr size_t kMostAtOnce = size_t{256} << 10;

  enum class End { kSender, kReceiver };
  /// One of the two lies in the other end's memory; null: this end cannot reach it.
  struct Way {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    size_t num_bytes = 0;
    /// Keeps the other end's memory mapped.
    std::shared_ptr<const void> mapping = nullptr;
  };
  /// Messages that are worth it, and of which the word can count the blocks.
  static bool suits(size_t num_bytes);

  /// `number`: the message's in its channel.
  JointCopy(JointCopyMemory& memory, End end, uint64_t number, Way way);

  /// The receiver's, before it tells the sender. Requires that the message before is taken. False: the sender has given up.
  bool begin();
  /// Copies blocks that nobody has claimed. Returns how many bytes.
  size_t copy_some();
  /// How many bytes both have copied, at least; the last block counts as a whole one.
  size_t num_copied() const;
  /// The receiver's: all blocks are there, and the sender had not given up: the message is taken. From now on the sender may
  /// use its memory for something else.
  bool take();
  /// The receiver gives up. Returns true if the sender may still be writing a block; once it is closed, false.
  bool close();
  /// The sender gives up all that it has offered.
  static void close(JointCopyMemory& memory);

 private:
  std::optional<uint64_t> claim();
  /// The message is under way: neither taken nor given up.
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
