#include "cohort/shm/transfer/joint_copy.h"

#include <algorithm>
#include <utility>

#include "cohort/shm/terms/bytes.h"

namespace cohort::shm {
namespace {

// The content of the word: the message's number, and how many blocks its ends have claimed, the receiver from the front, the
// sender from the back. So each end copies about the same part of a tensor each time, and maps few of the other's pages.
struct Claims {
  uint64_t number = 0;
  uint64_t front = 0;
  uint64_t back = 0;
  uint64_t count() const { return front + back; }
};

constexpr int kCountBits = 24;
constexpr uint64_t kMostBlocks = (uint64_t{1} << kCountBits) - 2;
// A value of `front`.
constexpr uint64_t kTaken = kMostBlocks + 1;
constexpr uint64_t kClosed = ~uint64_t{0};
// The number's bits: more than the messages that are possible while an end is stopped.
constexpr uint64_t kNumberBits = (uint64_t{1} << (64 - 2 * kCountBits)) - 1;

uint64_t word_of(const Claims& claims) {
  return (claims.number & kNumberBits) << (2 * kCountBits) | claims.back << kCountBits | claims.front;
}
Claims claims_in(uint64_t word) {
  constexpr uint64_t kCount = kMostBlocks + 1;
  return {word >> (2 * kCountBits), word & kCount, word >> kCountBits & kCount};
}

// For the first access to another process's tensor the system maps up to 16 pages at once if it is a read, and one page if it is
// a write.
void map_pages(const std::byte* memory, size_t num_bytes) {
  const volatile std::byte* const bytes = memory;
  static_cast<void>(bytes[0]);
  static_cast<void>(bytes[num_bytes - 1]);
}

}  // namespace

bool JointCopy::suits(size_t num_bytes) { return num_bytes > kMostStreamed && num_bytes / kBlockBytes < kMostBlocks; }

JointCopy::JointCopy(JointCopyMemory& memory, End end, uint64_t number, Way way)
    : memory_(memory), end_(end), number_(number & kNumberBits), way_(std::move(way)) {}

// Between two messages only this end changes the word, unless the sender closes it.
bool JointCopy::begin() {
  num_given_before_ = memory_.num_given.load();
  auto before = memory_.claims.load();
  return before != kClosed && memory_.claims.compare_exchange_strong(before, word_of({number_}));
}

// The number is in the word, so an end that was stopped claims nothing of a later message.
std::optional<uint64_t> JointCopy::claim() {
  auto word = memory_.claims.load(std::memory_order_relaxed);
  while (is_open(word)) {
    auto claims = claims_in(word);
    if (claims.count() >= num_blocks()) break;
    const auto block = end_ == End::kReceiver ? claims.front++ : num_blocks() - ++claims.back;
    if (memory_.claims.compare_exchange_weak(word, word_of(claims))) return block;
  }
  return std::nullopt;
}

bool JointCopy::is_open(uint64_t word) const {
  const auto claims = claims_in(word);
  return word != kClosed && claims.number == number_ && claims.front != kTaken;
}

size_t JointCopy::copy_some() {
  if (!way_.from || !way_.to) return 0;
  size_t num_copied = 0;
  while (num_copied < kMostAtOnce) {
    const auto block = claim();
    if (!block) break;
    const auto begin = *block * kBlockBytes;
    const auto num_bytes = std::min(kBlockBytes, way_.num_bytes - begin);
    if (end_ == End::kSender) map_pages(way_.to + begin, num_bytes);
    copy_bytes(way_.to + begin, way_.from + begin, num_bytes);
    ++num_own_;
    num_copied += num_bytes;
    if (end_ == End::kSender) memory_.num_given.fetch_add(1);
  }
  return num_copied;
}

// The sender does not know whether the receiver is done with the block that it claimed last.
size_t JointCopy::num_copied() const {
  const auto word = memory_.claims.load();
  uint64_t num_others = end_ == End::kReceiver ? num_given() : 0;
  if (end_ == End::kSender && is_open(word)) num_others = std::max<uint64_t>(claims_in(word).front, 1) - 1;
  return std::min((num_own_ + num_others) * kBlockBytes, way_.num_bytes);
}

bool JointCopy::take() {
  const auto num_given = this->num_given();
  if (num_own_ + num_given != num_blocks()) return false;
  auto all = word_of({number_, num_own_, num_given});
  return memory_.claims.compare_exchange_strong(all, word_of({number_, kTaken}));
}

// A sender that has closed the word is not copying a block.
bool JointCopy::close() {
  const auto word = memory_.claims.exchange(kClosed);
  return is_open(word) && claims_in(word).back != num_given();
}

void JointCopy::close(JointCopyMemory& memory) { memory.claims.store(kClosed); }

}  // namespace cohort::shm
