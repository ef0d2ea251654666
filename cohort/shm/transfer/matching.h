/// Matching: assigns messages to receives. Pure: uses no shared memory.
///
/// As in MPI, messages of one source and tag are taken in the order they were sent; receives that fit the same message are served
/// in the order they were posted; messages with other tags may overtake. A receive from any source serves the sources in turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "cohort/shm/transfer/channel.h"

namespace cohort::shm {

constexpr int kAnySource = -1;

/// A receive that waits for a message.
struct Wish {
  int from = kAnySource;
  int32_t tag = 0;
};

/// A message that waits for a receive.
struct Message {
  MessageHeader header;
  uint64_t number = 0;
  /// Whether its bytes are still in the channel's offer, which must not be released.
  bool is_in_offer = false;
  /// Otherwise, the bytes of an inline message.
  std::vector<std::byte> payload = {};
};

struct SourcedMessage {
  int source;
  Message message;
};

class Matching {
 public:
  explicit Matching(int world_size) : messages_(static_cast<size_t>(world_size)) {}

  /// Returns the message for this wish, or keeps the wish, which must live until it is served or withdrawn.
  std::optional<SourcedMessage> post(Wish* wish);
  /// Returns the wish for this message. If there is none, keeps the message.
  Wish* arrive(int source, const Message& message);
  void withdraw(const Wish* wish);

  bool has_wishes() const { return !wishes_.empty(); }
  bool wishes_from(int source) const;
  bool has_wish_from_any() const { return wishes_from(kAnySource); }
  /// The source at which a search for messages from any source should begin.
  int first_source() const { return first_source_; }

  /// The number of the oldest waiting message whose bytes are in the channel's offer.
  std::optional<uint64_t> oldest_in_offer(int source) const;
  /// Calls `rescue` for each message that is in its offer, and marks it as not being there any more.
  void empty_offers(int source, const std::function<void(Message&)>& rescue);
  /// The tags of waiting messages, sorted, each once.
  std::vector<int32_t> waiting_tags(int source) const;

 private:
  std::optional<SourcedMessage> take(int source, int32_t tag);

  std::vector<Wish*> wishes_;                  ///< in posting order
  std::vector<std::deque<Message>> messages_;  ///< per source, in sending order
  int first_source_ = 0;
};

}  // namespace cohort::shm
