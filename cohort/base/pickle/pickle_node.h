/// Nodes of pickled values, which copies share. For PickleValue and its reader.
#pragma once

#include "cohort/base/pickle/pickle_value.h"

namespace cohort::base {

struct PickleNode {
  explicit PickleNode(PickleKind k) : kind(k) {}
  PickleNode(const PickleNode&) = delete;
  PickleNode& operator=(const PickleNode&) = delete;
  virtual ~PickleNode() = default;

  PickleKind kind;
  /// Only the reader uses the members from here on. True if another value refers to this one: it must not change any more.
  bool is_shared = false;
  /// Whether it is a name or persistent id, or a tuple with one in it.
  bool is_opaque = false;
  int depth = 0;
};

/// Holds kText and kBytes. `text` is in `own`, or in the bytes that the pickle was read from.
struct PickleTextNode : PickleNode {
  PickleTextNode(PickleKind k, std::string value) : PickleNode(k), own(std::move(value)), text(own) {}
  PickleTextNode(PickleKind k, std::string_view value) : PickleNode(k), text(value) {}
  std::string own;
  std::string_view text;
};

struct PickleComplexNode : PickleNode {
  explicit PickleComplexNode(std::complex<double> v) : PickleNode(PickleKind::kComplex), value(v) {}
  std::complex<double> value;
};

/// Holds kList and kTuple.
struct PickleItemsNode : PickleNode {
  PickleItemsNode(PickleKind k, std::vector<PickleValue> values) : PickleNode(k), items(std::move(values)) {}
  std::vector<PickleValue> items;
};

/// Holds kDict.
struct PickleDictNode : PickleNode {
  explicit PickleDictNode(std::vector<PickleEntry> values)
      : PickleNode(PickleKind::kDict), entries(std::move(values)) {}
  std::vector<PickleEntry> entries;
};

/// Holds kName.
struct PickleNameNode : PickleNode {
  explicit PickleNameNode(PythonName n) : PickleNode(PickleKind::kName), name(std::move(n)) {}
  PythonName name;
};

/// Holds kObject.
struct PickleObjectNode : PickleNode {
  PickleObjectNode(PickleValue name, PickleValue tuple, bool is_new)
      : PickleNode(PickleKind::kObject), callable(std::move(name)), arguments(std::move(tuple)), by_new(is_new) {}
  PickleValue callable;
  PickleValue arguments;
  std::vector<PickleValue> items;
  std::vector<PickleEntry> entries;
  PickleValue state;
  bool by_new;
};

/// Holds kPersistent.
struct PicklePersistentNode : PickleNode {
  explicit PicklePersistentNode(PickleValue i) : PickleNode(PickleKind::kPersistent), id(std::move(i)) {}
  PickleValue id;
};

}  // namespace cohort::base
