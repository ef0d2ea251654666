#include "cohort/shm/channel.h"

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

// Stores, so that the reader sees everything written before, and wakes it if it sleeps.
void announce_to(std::atomic<uint64_t>& word, uint64_t value, Bell& bell) {
  word.store(value, std::memory_order_seq_cst);
  bell.ring();
}

size_t bytes_of_chunk(size_t num_bytes, size_t num_done) { return std::min(kChunkBytes, num_bytes - num_done); }

}  // namespace

struct ChannelMemory {
  // The receiver's. On lines of their own, so that each end polls lines that change only for its sake.
  alignas(64) std::atomic<uint64_t> accepted;
  std::atomic<uint64_t> num_consumed;
  alignas(64) std::atomic<uint64_t> num_released;
  // The sender's.
  alignas(64) std::atomic<uint64_t> num_produced;
  // The receiver's, written once; is_refused after the rest.
  alignas(64) std::atomic<uint64_t> is_refused;
  StoredHeader refused;
  uint64_t expected_bytes;
  uint8_t expected_dtype;

  Offer offers[kNumOffers];
  alignas(4096) std::byte ring[kNumChunks * kChunkBytes];

  Offer& offer(uint64_t number) { return offers[(number - 1) % kNumOffers]; }
  std::byte* chunk(uint64_t index) { return ring + index % kNumChunks * kChunkBytes; }
};
static_assert(sizeof(ChannelMemory) <= size_t{144} << 10);

size_t channel_memory_bytes() { return sizeof(ChannelMemory); }

ChannelSource::ChannelSource(std::byte* memory, Bell* receiver_bell)
    : memory_(reinterpret_cast<ChannelMemory*>(memory)), bell_(receiver_bell) {}

// Damaged memory may claim more than was offered; then the difference is huge and there is no room.
bool ChannelSource::has_room() const { return num_offered_ - memory_->num_released.load() < kNumOffers; }

uint64_t ChannelSource::offer(const MessageHeader& header, const void* data) {
  const auto number = ++num_offered_;
  auto& offer = memory_->offer(number);
  offer.header = stored(header);
  if (header.is_inline() && header.num_bytes > 0) std::memcpy(offer.payload, data, header.num_bytes);
  announce_to(offer.number, number, *bell_);
  return number;
}

uint64_t ChannelSource::accepted() const { return memory_->accepted.load(); }

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
  return loaded(offer.header);
}

void ChannelDestination::read_inline(uint64_t number, void* data, size_t num_bytes) const {
  if (num_bytes > 0) std::memcpy(data, memory_->offer(number).payload, std::min(num_bytes, kInlineBytes));
}

void ChannelDestination::release(uint64_t number) {
  if (number == num_released_) return;
  num_released_ = number;
  announce_to(memory_->num_released, number, *bell_);
}

void ChannelDestination::accept(uint64_t number) { announce_to(memory_->accepted, number, *bell_); }

size_t ChannelDestination::consume(std::byte* data, size_t num_bytes, size_t num_done) {
  const auto begin = num_done;
  // Damaged memory may claim more chunks than the ring holds: they are read all the same, from the ring and no further.
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
