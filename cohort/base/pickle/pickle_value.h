/// PickleValue: the content of a pickle, as a tree of Python's plain values. Names, calls and objects are only described: nothing
/// is imported, and no code runs.
///
/// Copies share their nodes. A value that the pickle refers to from two places is the same node in both (identity()), so code
/// that converts a tree keeps its results by identity: trees with sharing can have exponentially many paths. Nesting stops at
/// kMaxPickleDepth, so recursion is safe.
///
/// Thread-safety: const; any number of threads may read.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::base {

constexpr int kMaxPickleDepth = 200;

/// A Python name that a pickle refers to, such as {"torch._utils", "_rebuild_tensor_v2"}.
struct PythonName {
  std::string module;
  std::string name;

  bool is(std::string_view m, std::string_view n) const { return module == m && name == n; }
  /// "torch._utils._rebuild_tensor_v2"
  std::string text() const { return module + "." + name; }
};

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,
  kComplex,
  kText,
  kBytes,
  kList,
  kTuple,
  kDict,
  /// A function, class or constant of a module, which is not called.
  kName,
  /// The result of calling a name, with the items, entries and state that were set in it.
  kObject,
  /// A value that the pickle names with an id, for its reader to provide.
  kPersistent,
};

/// The kind as Python calls it: "NoneType", "str", "dict"; "function or class", "object", "persistent id".
std::string_view kind_text(PickleKind kind);

struct PickleNode;
struct PickleEntry;
struct PickleParts;

class PickleValue {
 public:
  /// Makes None.
  PickleValue() = default;
  static PickleValue of_bool(bool value);
  static PickleValue of_int(int64_t value);
  static PickleValue of_float(double value);
  static PickleValue of_complex(std::complex<double> value);
  /// Makes a text. Requires UTF-8.
  static PickleValue of_text(std::string utf8);
  static PickleValue of_bytes(std::string bytes);
  /// Makes a value that refers to `bytes`, which must outlive it.
  static PickleValue view_of_bytes(std::string_view bytes);
  static PickleValue list(std::vector<PickleValue> items);
  static PickleValue tuple(std::vector<PickleValue> items);
  static PickleValue dict(std::vector<PickleEntry> entries);
  static PickleValue of_name(std::string module, std::string name);
  static PickleValue object(PythonName callable, std::vector<PickleValue> arguments);
  static PickleValue object(PythonName callable, PickleParts parts);
  static PickleValue persistent(PickleValue id);

  PickleKind kind() const { return kind_; }
  bool is(PickleKind wanted) const { return kind() == wanted; }
  bool is_none() const { return kind() == PickleKind::kNone; }
  /// Whether this is a text equal to `text`.
  bool is_text(std::string_view text) const;

  /// Each of these requires the kind in its name, and returns zero or empty for other kinds.
  bool to_bool() const { return kind_ == PickleKind::kBool && int_ != 0; }
  int64_t to_int() const { return kind_ == PickleKind::kInt ? int_ : 0; }
  double to_float() const { return kind_ == PickleKind::kFloat ? float_ : 0.0; }
  std::complex<double> to_complex() const;
  /// The content of a text or bytes.
  std::string_view text() const;
  /// The items of a list or tuple; of an object, the items appended to it.
  const std::vector<PickleValue>& items() const;
  /// The entries of a dict, in order; of an object, the entries set in it by keys.
  const std::vector<PickleEntry>& entries() const;
  /// Returns the value of the entry with this text as its key; null if there is none.
  const PickleValue* find(std::string_view key) const;
  /// The name; of an object, the name that was called.
  const PythonName& name() const;
  /// The arguments with which an object was called.
  const std::vector<PickleValue>& arguments() const;
  /// The attributes of an object (BUILD); None if none were set.
  const PickleValue& object_state() const;
  /// The id of a persistent id.
  const PickleValue& id() const;

  /// Equal for values that are the same object in Python; null for None, bool, int and float.
  const void* identity() const;

 private:
  friend class PickleMachine;
  explicit PickleValue(std::shared_ptr<PickleNode> node);
  PickleNode* node() const { return node_.get(); }

  PickleKind kind_ = PickleKind::kNone;
  int64_t int_ = 0;
  double float_ = 0;
  /// Null for None, bool, int and float.
  std::shared_ptr<PickleNode> node_;
};

struct PickleEntry {
  PickleValue key;
  PickleValue value;
};

/// The pieces that an object is made from.
struct PickleParts {
  std::vector<PickleValue> arguments = {};
  std::vector<PickleValue> items = {};
  std::vector<PickleEntry> entries = {};
  PickleValue state = {};
  /// Whether cls.__new__(cls, *arguments) makes it, as for objects without a __reduce__ of their own, instead of a call of the
  /// name.
  bool by_new = false;
};

/// Whether an object is made by PickleParts::by_new.
bool is_by_new(const PickleValue& object);

}  // namespace cohort::base
