/// NgramModel: the classical byte model that a neural one should beat. It counts every byte after every context of 0 to
/// order - 1 bytes and mixes the orders by Witten-Bell's rule: a context that has been followed by many different bytes
/// trusts the next shorter one more.
///
///     p(byte | context) = (count(context, byte) + kinds(context) * p(byte | shorter context))
///                         / (count(context) + kinds(context))
///
/// where kinds is the number of different bytes seen after the context; below the empty context lies 1 / 256. Every byte
/// has a probability above 0, and the 256 of them sum to 1. order 1 is a unigram model.
///
/// Memory: 16 bytes per table slot, less than half of which are filled: about 100 MiB for 40 MB of source code at order 4.
/// Thread-safety: loss() may run in several threads at once, fit() alone.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "cohort/export.h"

namespace cohort::models {

class COHORT_API NgramModel {
 public:
  static constexpr int kMaxOrder = 6;

  /// Throws c10::ValueError unless 1 <= order <= kMaxOrder.
  explicit NgramModel(int order);

  /// Adds the text's counts. Contexts do not reach over the ends of a text.
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
  // tables_[n]: contexts of n bytes and, under keys one byte longer, what followed them.
  std::array<Table, kMaxOrder + 1> tables_;
};

}  // namespace cohort::models
