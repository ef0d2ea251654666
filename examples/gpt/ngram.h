/// NgramModel: the classical byte model as a baseline. It counts every byte after every context of 0 to order - 1 bytes and mixes
/// the orders by Witten-Bell's rule: if a context has been followed by many different bytes, the next shorter context has more
/// weight.
///
///     p(byte | context) = (count(context, byte) + kinds(context) * p(byte | shorter context))
///                         / (count(context) + kinds(context))
///
/// where kinds is the number of different bytes seen after the context; for the empty context, p of the shorter one is 1 / 256.
/// Every byte has a probability above 0, and the sum over all 256 is 1. Order 1 is a unigram model.
///
/// Memory: 16 bytes per table slot, less than half of which are filled: about 100 MiB for 40 MB of source code at order 4.
/// Thread-safety: several threads may run loss() at once; fit() must run alone.
#pragma once

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

namespace gpt {

class NgramModel {
 public:
  static constexpr int kMaxOrder = 6;

  /// Throws c10::ValueError unless 1 <= order <= kMaxOrder.
  explicit NgramModel(int order);

  /// Adds the text's counts. Contexts do not reach over the beginning of a text.
  void fit(std::string_view text);

  /// Returns p(text[position] | the bytes before it), from at most order - 1 of them.
  double probability(std::string_view text, size_t position) const;

  /// Returns the sum of -log p in nats over text[begin, end), each byte with the true bytes before it.
  double loss(std::string_view text, size_t begin, size_t end) const;

  int order() const { return order_; }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t count = 0;
    uint32_t kinds = 0;
  };
  // Open addressing; key 0 marks an empty slot.
  class Table {
   public:
    Slot& find_or_add(uint64_t key);
    const Slot* find(uint64_t key) const;

   private:
    void grow();
    std::vector<Slot> slots_;
    size_t num_used_ = 0;
  };

  int order_;
  // tables_[n]: contexts of n bytes, and their followers under keys one byte longer.
  std::array<Table, kMaxOrder + 1> tables_;
};

namespace detail {

// Returns the last `length` bytes before `end`, with the length in the top byte so that different lengths have different keys and
// no key is 0.
inline uint64_t key_of(std::string_view text, size_t end, int length) {
  uint64_t key = static_cast<uint64_t>(length) + 1;
  for (size_t i = end - length; i < end; ++i) key = key << 8 | static_cast<unsigned char>(text[i]);
  return key;
}

inline size_t slot_of(uint64_t key, size_t mask) {
  key *= 0x9E3779B97F4A7C15ULL;
  return static_cast<size_t>(key >> 20) & mask;
}

}  // namespace detail

inline NgramModel::Slot& NgramModel::Table::find_or_add(uint64_t key) {
  if (2 * (num_used_ + 1) > slots_.size()) grow();
  const size_t mask = slots_.size() - 1;
  for (size_t i = detail::slot_of(key, mask);; i = (i + 1) & mask) {
    if (slots_[i].key == key) return slots_[i];
    if (slots_[i].key == 0) {
      slots_[i].key = key;
      ++num_used_;
      return slots_[i];
    }
  }
}

inline const NgramModel::Slot* NgramModel::Table::find(uint64_t key) const {
  if (slots_.empty()) return nullptr;
  const size_t mask = slots_.size() - 1;
  for (size_t i = detail::slot_of(key, mask); slots_[i].key != 0; i = (i + 1) & mask) {
    if (slots_[i].key == key) return &slots_[i];
  }
  return nullptr;
}

inline void NgramModel::Table::grow() {
  std::vector<Slot> old(std::max(size_t{1024}, 2 * slots_.size()));
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.key == 0) continue;
    size_t i = detail::slot_of(slot.key, mask);
    while (slots_[i].key != 0) i = (i + 1) & mask;
    slots_[i] = slot;
  }
}

inline NgramModel::NgramModel(int order) : order_(order) {
  TORCH_CHECK_VALUE(order >= 1 && order <= kMaxOrder, "NgramModel: order must be from 1 to ", kMaxOrder, ", got ",
                    order);
}

inline void NgramModel::fit(std::string_view text) {
  for (size_t position = 0; position < text.size(); ++position) {
    for (int length = 0; length < order_ && static_cast<size_t>(length) <= position; ++length) {
      // Counts a context of `length` bytes in table `length`, separately from the same bytes as "context and follower" in table
      // length - 1, as a context at the end of a text has no follower.
      Slot& pair = tables_[length + 1].find_or_add(detail::key_of(text, position + 1, length + 1));
      const bool is_new = pair.count++ == 0;
      Slot& context = tables_[length].find_or_add(detail::key_of(text, position, length) | uint64_t{1} << 63);
      ++context.count;
      if (is_new) ++context.kinds;
    }
  }
}

inline double NgramModel::probability(std::string_view text, size_t position) const {
  double p = 1.0 / 256.0;
  for (int length = 0; length < order_ && static_cast<size_t>(length) <= position; ++length) {
    const Slot* context = tables_[length].find(detail::key_of(text, position, length) | uint64_t{1} << 63);
    if (!context) break;
    const Slot* pair = tables_[length + 1].find(detail::key_of(text, position + 1, length + 1));
    const double count = pair ? pair->count : 0.0;
    p = (count + context->kinds * p) / (static_cast<double>(context->count) + context->kinds);
  }
  return p;
}

inline double NgramModel::loss(std::string_view text, size_t begin, size_t end) const {
  double sum = 0.0;
  for (size_t position = begin; position < end; ++position) sum -= std::log(probability(text, position));
  return sum;
}

}  // namespace gpt
