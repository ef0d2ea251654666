#include <unordered_map>
#include <vector>

#include "cohort/base/pickle_writer.h"

namespace cohort::base {
namespace {

using namespace pickle_opcode;

// Writes a tree in two passes: which nodes occur twice, then the values.
class TreeWriter {
 public:
  explicit TreeWriter(int protocol) : writer_(protocol) {}

  /// False: too deep.
  bool count(const PickleValue& value, int depth) {
    if (depth > kMaxPickleDepth + 1) return false;
    if (const void* node = value.identity(); node && ++uses_[node] > 1) return true;
    const auto inside = [&](const PickleValue& part) { return count(part, depth + 1); };
    bool ok = count_all(value.items(), inside) && count_all(value.arguments(), inside);
    for (const PickleEntry& entry : value.entries()) ok = ok && inside(entry.key) && inside(entry.value);
    if (value.is(PickleKind::kObject)) ok = ok && inside(value.object_state());
    if (value.is(PickleKind::kPersistent)) ok = ok && inside(value.id());
    return ok;
  }

  void put(const PickleValue& value) {
    const void* node = value.identity();
    if (node) {
      const auto known = numbers_.find(node);
      if (known != numbers_.end()) return writer_.put_again(known->second);
    }
    put_new(value);
    const bool is_kept = node && uses_[node] > 1 && !numbers_.contains(node);
    if (is_kept) remember(node);
  }

  std::string finish() { return writer_.finish(); }

 private:
  template <typename Inside>
  static bool count_all(const std::vector<PickleValue>& values, Inside inside) {
    for (const PickleValue& value : values) {
      if (!inside(value)) return false;
    }
    return true;
  }

  void remember(const void* node) {
    const auto number = static_cast<uint32_t>(num_kept_++);
    numbers_.emplace(node, number);
    writer_.put_memo(number);
  }

  void put_scalar(const PickleValue& value) {
    if (value.is(PickleKind::kBool)) return writer_.put_bool(value.to_bool());
    if (value.is(PickleKind::kInt)) return writer_.put_int(value.to_int());
    if (value.is(PickleKind::kFloat)) return writer_.put_double(value.to_float());
    if (!value.is(PickleKind::kComplex)) return writer_.put_none();
    put_name({"builtins", "complex"});
    writer_.put_double(value.to_complex().real());
    writer_.put_double(value.to_complex().imag());
    writer_.put({kTuple2, kReduce});
  }

  void put_new(const PickleValue& value) {
    switch (value.kind()) {
      case PickleKind::kText:
        return writer_.put_text(value.text());
      case PickleKind::kBytes:
        return writer_.put_bytes(value.text());
      case PickleKind::kList:
        writer_.put(kEmptyList);
        return put_items(value);
      case PickleKind::kTuple:
        return put_tuple(value.items());
      case PickleKind::kDict:
        writer_.put(kEmptyDict);
        return put_entries(value);
      case PickleKind::kName:
        return put_name(value.name());
      case PickleKind::kObject:
        return put_object(value);
      case PickleKind::kPersistent:
        put(value.id());
        return writer_.put(kBinPersId);
      default:
        return put_scalar(value);
    }
  }

  void put_items(const PickleValue& value) {
    if (value.items().empty()) return;
    writer_.put(kMark);
    for (const PickleValue& item : value.items()) put(item);
    writer_.put(kAppends);
  }

  void put_entries(const PickleValue& value) {
    if (value.entries().empty()) return;
    writer_.put(kMark);
    for (const PickleEntry& entry : value.entries()) {
      put(entry.key);
      put(entry.value);
    }
    writer_.put(kSetItems);
  }

  void put_tuple(const std::vector<PickleValue>& items) {
    if (items.empty()) return writer_.put(kEmptyTuple);
    if (items.size() > 3) writer_.put(kMark);
    for (const PickleValue& item : items) put(item);
    writer_.put(items.size() > 3 ? kTuple : static_cast<char>(kTuple1 + static_cast<int>(items.size()) - 1));
  }

  // A state dict has the same few names in each of its tensors.
  void put_name(const PythonName& name) {
    const auto [place, is_new] = names_.try_emplace(name.text(), static_cast<uint32_t>(num_kept_));
    if (!is_new) return writer_.put_again(place->second);
    writer_.put_name(name.module, name.name);
    writer_.put_memo(static_cast<uint32_t>(num_kept_++));
  }

  void put_object(const PickleValue& value) {
    put_name(value.name());
    put_tuple(value.arguments());
    writer_.put(is_by_new(value) ? kNewObj : kReduce);
    put_items(value);
    put_entries(value);
    if (value.object_state().is_none()) return;
    put(value.object_state());
    writer_.put(kBuild);
  }

  PickleWriter writer_;
  std::unordered_map<const void*, size_t> uses_;
  std::unordered_map<const void*, uint32_t> numbers_;
  std::unordered_map<std::string, uint32_t> names_;
  uint64_t num_kept_ = 0;
};

}  // namespace

Result<std::string> write_pickle(const PickleValue& value, int protocol) {
  TreeWriter tree(protocol);
  if (!tree.count(value, 0)) {
    return Error("cannot pickle a value nested deeper than " + std::to_string(kMaxPickleDepth));
  }
  tree.put(value);
  return tree.finish();
}

}  // namespace cohort::base
