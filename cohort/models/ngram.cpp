#include "cohort/models/ngram.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

namespace cohort::models {
namespace {

constexpr size_t kFirstCapacity = 1024;

// The last `length` bytes before `end`, with the length on top so that no two lengths share a key and none is 0.
uint64_t key_of(std::string_view text, size_t end, int length) {
  uint64_t key = static_cast<uint64_t>(length) + 1;
  for (size_t i = end - length; i < end; ++i) key = key << 8 | static_cast<unsigned char>(text[i]);
  return key;
}

size_t slot_of(uint64_t key, size_t mask) {
  key *= 0x9E3779B97F4A7C15ULL;
  return static_cast<size_t>(key >> 20) & mask;
}

}  // namespace

NgramModel::Slot& NgramModel::Table::find_or_add(uint64_t key) {
  if (2 * (num_used_ + 1) > slots_.size()) grow();
  const size_t mask = slots_.size() - 1;
  for (size_t i = slot_of(key, mask);; i = (i + 1) & mask) {
    if (slots_[i].key == key) return slots_[i];
    if (slots_[i].key == 0) {
      slots_[i].key = key;
      ++num_used_;
      return slots_[i];
    }
  }
}

const NgramModel::Slot* NgramModel::Table::find(uint64_t key) const {
  if (slots_.empty()) return nullptr;
  const size_t mask = slots_.size() - 1;
  for (size_t i = slot_of(key, mask); slots_[i].key != 0; i = (i + 1) & mask) {
    if (slots_[i].key == key) return &slots_[i];
  }
  return nullptr;
}

void NgramModel::Table::grow() {
  std::vector<Slot> old(std::max(kFirstCapacity, 2 * slots_.size()));
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.key == 0) continue;
    size_t i = slot_of(slot.key, mask);
    while (slots_[i].key != 0) i = (i + 1) & mask;
    slots_[i] = slot;
  }
}

NgramModel::NgramModel(int order) : order_(order) {
  TORCH_CHECK_VALUE(order >= 1 && order <= kMaxOrder, "NgramModel: order must be from 1 to ", kMaxOrder, ", got ",
                    order);
}

void NgramModel::fit(std::string_view text) {
  for (size_t position = 0; position < text.size(); ++position) {
    for (int length = 0; length < order_ && static_cast<size_t>(length) <= position; ++length) {
      // A context of `length` bytes lies in table `length`, the same bytes as "context and follower" in table length - 1:
      // apart, because a context at the end of a text has no follower.
      Slot& pair = tables_[length + 1].find_or_add(key_of(text, position + 1, length + 1));
      const bool is_new = pair.count++ == 0;
      Slot& context = tables_[length].find_or_add(key_of(text, position, length) | uint64_t{1} << 63);
      ++context.count;
      if (is_new) ++context.kinds;
    }
  }
}

double NgramModel::probability(std::string_view text, size_t position) const {
  double p = 1.0 / 256.0;
  for (int length = 0; length < order_ && static_cast<size_t>(length) <= position; ++length) {
    const Slot* context = tables_[length].find(key_of(text, position, length) | uint64_t{1} << 63);
    if (!context) break;
    const Slot* pair = tables_[length + 1].find(key_of(text, position + 1, length + 1));
    const double count = pair ? pair->count : 0.0;
    p = (count + context->kinds * p) / (static_cast<double>(context->count) + context->kinds);
  }
  return p;
}

double NgramModel::loss(std::string_view text, size_t begin, size_t end) const {
  double sum = 0.0;
  for (size_t position = begin; position < end; ++position) sum -= std::log(probability(text, position));
  return sum;
}

}  // namespace cohort::models
