#include "cohort/base/pickle/pickle_writer.h"

#include <bit>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cohort/base/pickle/pickle_opcodes.h"
#include "cohort/base/pickle/pickle_text.h"

namespace cohort::base {
namespace {

using namespace pickle_opcode;

// Writes value by value. Knows only Python's own types.
class PickleWriter {
 public:
  // Only protocol 4 has short forms of texts and bytes, and names on the stack.
  explicit PickleWriter(int protocol) : protocol_(protocol), out_{kProto, static_cast<char>(protocol)} {}

  void put_none() { put(kNone); }
  void put_bool(bool value) { put(value ? kNewTrue : kNewFalse); }
  void put_int(int64_t value);
  void put_double(double value);
  void put_text(std::string_view utf8) { put_sized(utf8, kShortBinUnicode, kBinUnicode, kBinUnicode8); }
  void put_bytes(std::string_view bytes);
  void put_name(std::string_view module, std::string_view name);
  // put_memo stores the last value under the next number; put_again writes the value of a number again.
  void put_memo(uint32_t number) { put_numbered(number, kBinPut, kLongBinPut); }
  void put_again(uint32_t number) { put_numbered(number, kBinGet, kLongBinGet); }
  // Writes operations that make lists, tuples, dicts and calls of the values before and after.
  void put(char opcode) { out_ += opcode; }
  void put(std::initializer_list<char> opcodes) { out_ += opcodes; }

  // Returns the pickle. The writer cannot be used afterwards.
  std::string finish() {
    put(kStop);
    return std::move(out_);
  }

 private:
  void put_unsigned(uint64_t value, int num_bytes);
  void put_numbered(uint32_t number, char small, char large);
  void put_sized(std::string_view bytes, char small, char medium, char large);

  int protocol_;
  std::string out_;
};

void PickleWriter::put_unsigned(uint64_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) out_ += static_cast<char>(value >> (8 * i));
}

// Writes the shortest form.
void PickleWriter::put_int(int64_t value) {
  if (value >= 0 && value <= 0xFFFF) {
    put(value <= 0xFF ? kBinInt1 : kBinInt2);
    put_unsigned(static_cast<uint64_t>(value), value <= 0xFF ? 1 : 2);
  } else if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()) {
    put(kBinInt);
    put_unsigned(static_cast<uint64_t>(value), 4);
  } else {
    put({kLong1, 8});
    put_unsigned(static_cast<uint64_t>(value), 8);
  }
}

// BINFLOAT is the only number in big-endian order.
void PickleWriter::put_double(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  put(kBinFloat);
  for (int shift = 56; shift >= 0; shift -= 8) out_ += static_cast<char>(bits >> shift);
}

void PickleWriter::put_sized(std::string_view bytes, char small, char medium, char large) {
  const bool is_small = bytes.size() <= 0xFF && protocol_ >= 4;
  const bool is_medium = bytes.size() <= 0xFFFFFFFF || protocol_ < 4;
  put(is_small ? small : is_medium ? medium : large);
  put_unsigned(bytes.size(), is_small ? 1 : is_medium ? 4 : 8);
  out_.append(bytes);
}

// Protocol 2 writes bytes as Python does: as a call that encodes a text.
void PickleWriter::put_bytes(std::string_view bytes) {
  if (protocol_ >= 3) {
    return put_sized(bytes, kShortBinBytes, kBinBytes, kBinBytes8);
  }
  std::string text;
  for (const char byte : bytes) append_utf8(text, static_cast<unsigned char>(byte));
  put_name("_codecs", "encode");
  put_text(text);
  put_text("latin1");
  put({kTuple2, kReduce});
}

void PickleWriter::put_name(std::string_view module, std::string_view name) {
  if (protocol_ >= 4) {
    put_text(module);
    put_text(name);
    return put(kStackGlobal);
  }
  put(kGlobal);
  out_.append(module).append("\n").append(name).append("\n");
}

void PickleWriter::put_numbered(uint32_t number, char small, char large) {
  put(number <= 0xFF ? small : large);
  put_unsigned(number, number <= 0xFF ? 1 : 4);
}

// Writes a tree in two passes: finds the nodes that occur twice, then writes the values.
class TreeWriter {
 public:
  explicit TreeWriter(int protocol) : writer_(protocol) {}

  /// Returns false if the value is nested too deep.
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
