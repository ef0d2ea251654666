#include "cohort/dtensor/dispatch/sharding_cache.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

namespace cohort::dtensor {
namespace {

constexpr size_t kMostCalls = 4096;
constexpr size_t kMostNumbers = (size_t{16} << 20) / sizeof(int64_t);

// The kind of the next value in a key.
enum Mark : int64_t { kNone, kInt, kBool, kDouble, kString, kDevice, kGenerator, kList, kUndefined, kPlain, kDTensor };

struct HashOfKey {
  size_t operator()(const CallKey& key) const { return key.hash(); }
};

struct ShardingCache {
  std::unordered_map<CallKey, std::shared_ptr<CachedSharding>, HashOfKey> calls;
  size_t num_numbers = 0;
  uint64_t age = 0;

  void clear() {
    calls.clear();
    num_numbers = 0;
  }
};

std::atomic<uint64_t> rules_age = 0;

ShardingCache& sharding_cache() {
  static thread_local ShardingCache known;
  const auto age = rules_age.load(std::memory_order_relaxed);
  if (known.age != age) {
    known.clear();
    known.age = age;
  }
  return known;
}

size_t hash_of(c10::ArrayRef<int64_t> numbers) {
  uint64_t hash = 0x9e3779b97f4a7c15;
  for (const int64_t number : numbers) {
    hash = (hash ^ static_cast<uint64_t>(number)) * 0xff51afd7ed558ccd;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

CallKey::CallKey(const Rule& rule, const Call& call) {
  add(std::bit_cast<int64_t>(&rule));
  for (size_t i = 0; i < call.num_arguments(); ++i) add(call.argument(i), rule.reads_numbers);
  hash_ = hash_of(numbers_);
}

void CallKey::add(const at::Tensor& tensor) {
  if (!tensor.defined()) return add(kUndefined);
  if (tensor.layout() != at::kStrided) is_complete_ = false;
  if (!is_complete_) return;
  const auto* data = is_dtensor(tensor) ? &dtensor_data(tensor) : nullptr;
  const bool is_held = data && data->is_held;
  const bool is_dense = tensor.is_contiguous();
  add((data ? kDTensor : kPlain) | (static_cast<int64_t>(tensor.scalar_type()) << 8) | (is_dense << 16) |
      (is_held << 17) | (tensor.dim() << 18));
  numbers_.append(tensor.sizes().begin(), tensor.sizes().end());
  if (!is_dense) numbers_.append(tensor.strides().begin(), tensor.strides().end());
  if (!data) return;
  const auto& code = data->layout->code;
  numbers_.append(code.begin(), code.end());
}

void CallKey::add(const c10::IValue& value, bool reads_numbers) {
  if (value.isTensor()) {
    add(value.toTensor());
  } else if (value.isNone()) {
    add(kNone);
  } else if (value.isInt()) {
    add(kInt), add(value.toInt());
  } else if (value.isBool()) {
    add(kBool), add(value.toBool());
  } else if (value.isDouble()) {
    const double number = value.toDouble();
    add(kDouble), add(reads_numbers ? std::bit_cast<int64_t>(number) : number == 0);
  } else if (value.isList()) {
    const auto items = value.toListRef();
    add(kList), add(static_cast<int64_t>(items.size()));
    for (const auto& item : items) add(item, reads_numbers);
  } else if (value.isString()) {
    const auto& text = value.toStringRef();
    add(kString), add(static_cast<int64_t>(text.size()));
    for (const char one : text) add(one);
  } else if (value.isDevice()) {
    add(kDevice), add(static_cast<int64_t>(value.toDevice().type())), add(value.toDevice().index());
  } else if (value.isGenerator()) {
    add(kGenerator);
  } else {
    is_complete_ = false;
  }
}

std::shared_ptr<CachedSharding> find_cached_sharding(const CallKey& key) {
  const auto& calls = sharding_cache().calls;
  const auto found = calls.find(key);
  return found == calls.end() ? nullptr : found->second;
}

void cache_sharding(CallKey key, std::shared_ptr<CachedSharding> call) {
  auto& known = sharding_cache();
  if (known.calls.size() >= kMostCalls || known.num_numbers + key.size() > kMostNumbers) known.clear();
  known.num_numbers += key.size();
  known.calls.insert_or_assign(std::move(key), std::move(call));
}

void clear_sharding_caches() { ++rules_age; }

size_t sharding_cache_size() { return sharding_cache().calls.size(); }

}  // namespace cohort::dtensor
