#include "cohort/shm/transfer/channel.h"

#include <algorithm>
#include <cstring>

namespace cohort::shm {

// As MessageHeader, with a dtype that may be any byte.
struct StoredHeader {
  uint64_t num_bytes;
  int32_t tag;
  uint8_t dtype;
};

struct alignas(64) Offer {
  // Written last, read first; the header and the bytes belong to this number.
  std::atomic<uint64_t> number;
  StoredHeader header;
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(Offer) == 256);

namespace {

DType checked(uint8_t dtype) { return dtype < kNumDTypes ? static_cast<DType>(dtype) : DType::kBytes; }
StoredHeader stored(const MessageHeader& header) {
  return {header.num_bytes, header.tag, static_cast<uint8_t>(header.dtype)};
}
MessageHeader loaded(const StoredHeader& header) { return {header.num_bytes, header.tag, checked(header.dtype)}; }
MessageHeader loaded(const Offer& offer) {
  auto header = loaded(offer.header);
  if (!header.is_inline()) std::memcpy(&header.place, offer.payload, sizeof(header.place));
  return header;
}

// A bit of the word `accepted`, beside the number.
constexpr uint64_t kJointBit = 1;

// Stores the value, so that the reader sees everything written before, and wakes the reader if it sleeps.
void announce_to(std::atomic<uint64_t>& word, uint64_t value, Bell& bell) {
  word.store(value, std::memory_order_seq_cst);
  bell.ring();
}

// At least two chunks, so that the receiver copies one while the sender copies the next, but no small ones, because each chunk
// has a cost.
size_t bytes_of_chunk(size_t num_bytes, size_t num_done) {
  constexpr size_t kLeast = size_t{16} << 10;
  constexpr size_t kUnit = size_t{4} << 10;
  const auto half = (num_bytes / 2 + kUnit) / kUnit * kUnit;
  return std::min(std::clamp(half, kLeast, kChunkBytes), num_bytes - num_done);
}

}  // namespace

struct ChannelMemory {
  // The receiver's words. They are on lines of their own, so that each end polls lines that only the other end changes.
  alignas(64) std::atomic<uint64_t> accepted;
  std::atomic<uint64_t> num_consumed;
  std::atomic<uint64_t> num_taken;
  // Relaxed: a sender that reads them late copies nothing, see JointCopy::claim().
  std::atomic<uint64_t> target_region;
  std::atomic<uint64_t> target_offset;
  alignas(64) std::atomic<uint64_t> num_released;
  // The sender's words.
  alignas(64) std::atomic<uint64_t> num_produced;
  std::atomic<uint64_t> num_taken_seen;
  JointCopyMemory joint;
  // The receiver's words, written once; is_refused after the others.
  alignas(64) std::atomic<uint64_t> is_refused;
  StoredHeader refused;
  uint64_t expected_bytes;
  uint8_t expected_dtype;

  // The receiver's list of the last messages that num_taken counts.
  alignas(64) uint64_t taken[kNumOffers];
  Offer offers[kNumOffers];
  alignas(4096) std::byte ring[kNumChunks * kChunkBytes];

  Offer& offer(uint64_t number) { return offers[(number - 1) % kNumOffers]; }
  std::byte* chunk(uint64_t index) { return ring + index % kNumChunks * kChunkBytes; }
};
static_assert(sizeof(ChannelMemory) <= size_t{144} << 10);

size_t channel_memory_bytes() { return sizeof(ChannelMemory); }

ChannelSource::ChannelSource(std::byte* memory, Bell* receiver_bell)
    : memory_(reinterpret_cast<ChannelMemory*>(memory)), bell_(receiver_bell) {}

// Damaged memory may claim more than was offered; the difference is then huge and there is no room.
bool ChannelSource::has_room() const { return num_offered_ - memory_->num_released.load() < kNumOffers; }

uint64_t ChannelSource::offer(const MessageHeader& header, const void* data) {
  const auto number = ++num_offered_;
  auto& offer = memory_->offer(number);
  offer.header = stored(header);
  if (header.is_inline() && header.num_bytes > 0) std::memcpy(offer.payload, data, header.num_bytes);
  if (!header.is_inline()) std::memcpy(offer.payload, &header.place, sizeof(header.place));
  announce_to(offer.number, number, *bell_);
  return number;
}

Accepted ChannelSource::accepted() const {
  const auto word = memory_->accepted.load();
  return {
      word >> 1,
      (word & kJointBit) != 0,
      {memory_->target_region.load(std::memory_order_relaxed), memory_->target_offset.load(std::memory_order_relaxed)}};
}

uint64_t ChannelSource::next_taken() {
  if (memory_->num_taken.load() == num_taken_seen_) return 0;
  const auto number = memory_->taken[num_taken_seen_ % kNumOffers];
  memory_->num_taken_seen.store(++num_taken_seen_);
  return number;
}

JointCopyMemory& ChannelSource::joint() const { return memory_->joint; }

size_t ChannelSource::produce(const std::byte* data, size_t num_bytes, size_t num_done) {
  const auto begin = num_done;
  const auto end = num_produced_ + kNumChunks;
  while (num_done < num_bytes && num_produced_ != end && num_produced_ - memory_->num_consumed.load() < kNumChunks) {
    const auto size = bytes_of_chunk(num_bytes, num_done);
    std::memcpy(memory_->chunk(num_produced_), data + num_done, size);
    num_done += size;
    announce_to(memory_->num_produced, ++num_produced_, *bell_);
  }
  return num_done - begin;
}

std::optional<Refusal> ChannelSource::refusal() const {
  if (memory_->is_refused.load() == 0) return {};
  return Refusal{loaded(memory_->refused), memory_->expected_bytes, checked(memory_->expected_dtype)};
}

ChannelDestination::ChannelDestination(std::byte* memory, Bell* sender_bell)
    : memory_(reinterpret_cast<ChannelMemory*>(memory)), bell_(sender_bell) {}

std::optional<MessageHeader> ChannelDestination::next() {
  auto& offer = memory_->offer(num_seen_ + 1);
  if (offer.number.load() != num_seen_ + 1) return {};
  ++num_seen_;
  return loaded(offer);
}

void ChannelDestination::read_inline(uint64_t number, void* data, size_t num_bytes) const {
  if (num_bytes > 0) std::memcpy(data, memory_->offer(number).payload, std::min(num_bytes, kInlineBytes));
}

void ChannelDestination::release(uint64_t number) {
  if (number == num_released_) return;
  num_released_ = number;
  announce_to(memory_->num_released, number, *bell_);
}

void ChannelDestination::accept(const Accepted& message) {
  memory_->target_region.store(message.target.region, std::memory_order_relaxed);
  memory_->target_offset.store(message.target.offset, std::memory_order_relaxed);
  announce_to(memory_->accepted, message.number << 1 | (message.is_joint ? kJointBit : 0), *bell_);
}

bool ChannelDestination::can_note_taken() const { return num_taken_ - memory_->num_taken_seen.load() < kNumOffers; }

void ChannelDestination::note_taken(uint64_t number) {
  memory_->taken[num_taken_ % kNumOffers] = number;
  announce_to(memory_->num_taken, ++num_taken_, *bell_);
}

JointCopyMemory& ChannelDestination::joint() const { return memory_->joint; }

size_t ChannelDestination::consume(std::byte* data, size_t num_bytes, size_t num_done) {
  const auto begin = num_done;
  // Damaged memory may claim more chunks than the ring holds; this reads only as many as the ring has.
  const auto end = num_consumed_ + kNumChunks;
  while (num_done < num_bytes && num_consumed_ != end && memory_->num_produced.load() != num_consumed_) {
    const auto size = bytes_of_chunk(num_bytes, num_done);
    std::memcpy(data + num_done, memory_->chunk(num_consumed_), size);
    num_done += size;
    announce_to(memory_->num_consumed, ++num_consumed_, *bell_);
  }
  return num_done - begin;
}

void ChannelDestination::refuse(const Refusal& refusal) {
  if (memory_->is_refused.load() != 0) return;
  memory_->refused = stored(refusal.sent);
  memory_->expected_bytes = refusal.expected_bytes;
  memory_->expected_dtype = static_cast<uint8_t>(refusal.expected_dtype);
  announce_to(memory_->is_refused, 1, *bell_);
}

}  // namespace cohort::shm
