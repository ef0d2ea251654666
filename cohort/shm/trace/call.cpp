#include "cohort/shm/trace/call.h"

#include <fmt/format.h>

#include "cohort/base/text/text.h"

namespace cohort::shm {
namespace {

constexpr uint64_t kSharedBit = uint64_t{1} << 24;
constexpr int kPurposeShift = 25;
constexpr uint64_t kPurposeBits = uint64_t{31} << kPurposeShift;
// The bits that may differ between ranks.
constexpr uint64_t kOwnBits = kSharedBit | kPurposeBits;

uint8_t purpose_in(uint64_t word) { return static_cast<uint8_t>((word & kPurposeBits) >> kPurposeShift); }

bool are_alike(const Signature& a, const Signature& b) {
  return agree(a, b) && purpose_in(a.words[0]) == purpose_in(b.words[0]);
}

}  // namespace

Signature encode(const Call& call) {
  const auto word = static_cast<uint64_t>(call.kind) | static_cast<uint64_t>(call.dtype) << 8 |
                    static_cast<uint64_t>(call.reduce_op) << 16 | (call.is_shared ? kSharedBit : 0) |
                    static_cast<uint64_t>(call.purpose) << kPurposeShift |
                    static_cast<uint64_t>(static_cast<uint32_t>(call.root + 1)) << 32;
  return {{word, call.count}};
}

Call decode_call(const Signature& signature) {
  const auto word = signature.words[0];
  return {.kind = static_cast<OpKind>(word & 0xff),
          .dtype = static_cast<DType>(word >> 8 & 0xff),
          .reduce_op = static_cast<ReduceOp>(word >> 16 & 0xff),
          .is_shared = shm::is_shared(signature),
          .purpose = purpose_in(word),
          .root = static_cast<int>(word >> 32) - 1,
          .count = signature.words[1]};
}

bool is_shared(const Signature& signature) { return (signature.words[0] & kSharedBit) != 0; }

bool agree(const Signature& a, const Signature& b) {
  return ((a.words[0] ^ b.words[0]) & ~kOwnBits) == 0 && a.words[1] == b.words[1];
}

// Multiplying by odd numbers loses no information, and the upper half of a product depends on all bits below it.
uint32_t mix(uint32_t history, const Signature& signature) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  auto state = (history ^ (signature.words[0] & ~kOwnBits)) * kOdd;
  state = ((state ^ state >> 32) + signature.words[1]) * kOdd;
  return static_cast<uint32_t>(state >> 32);
}

std::string describe(const Call& call) {
  std::string text = name_of(call.kind);
  if (call.reduce_op != ReduceOp::kNone) text += std::string("(") + name_of(call.reduce_op) + ")";
  if (call.root >= 0) {
    const bool sends = call.kind == OpKind::kBroadcast || call.kind == OpKind::kScatter;
    text += fmt::format(" {} rank {}", sends ? "from" : "to", call.root);
  }
  if (call.kind == OpKind::kBarrier) return text;
  if (call.kind == OpKind::kAllToAll) return text + fmt::format(" of {}", name_of(call.dtype));
  return text + fmt::format(" of {} {}", call.count, name_of(call.dtype));
}

std::vector<std::string> table_of(const std::vector<Signature>& calls, const PurposeTexts& texts,
                                  const std::vector<int>& names) {
  std::vector<std::string> lines;
  std::vector<bool> is_listed(calls.size(), false);
  for (size_t i = 0; i < calls.size(); ++i) {
    if (is_listed[i]) continue;
    std::vector<int> ranks;
    for (size_t j = i; j < calls.size(); ++j) {
      if (!are_alike(calls[i], calls[j])) continue;
      ranks.push_back(names.empty() ? static_cast<int>(j) : names[j]);
      is_listed[j] = true;
    }
    const Call call = decode_call(calls[i]);
    lines.push_back(base::ranks_in_words(ranks) + (ranks.size() == 1 ? " calls " : " call ") +
                    texts.named(describe(call), call.purpose));
  }
  return lines;
}

std::string hint_for(const std::vector<Signature>& calls, const PurposeTexts& texts) {
  const uint8_t first = purpose_in(calls.front().words[0]);
  for (const auto& call : calls) {
    if (const uint8_t purpose = purpose_in(call.words[0]); purpose != first) return texts.hint(purpose, first);
  }
  return kSameCallsHint;
}

}  // namespace cohort::shm
