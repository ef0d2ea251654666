/// What values of pickles hold that copies share. For PickleValue and its reader.
#pragma once

#include "cohort/base/pickle/pickle_value.h"

namespace cohort::base {

struct PickleNode {
  explicit PickleNode(PickleKind k) : kind(k) {}
  PickleNode(const PickleNode&) = delete;
  PickleNode& operator=(const PickleNode&) = delete;
  virtual ~PickleNode() = default;

  PickleKind kind;
  /// The rest is the reader's. Something else refers to it: it must not change any more.
  bool is_shared = false;
  /// A name or persistent id, or a tuple with one in it.
  bool is_opaque = false;
  int depth = 0;
};

/// kText, kBytes. `text` lies in `own`, or in what the pickle was read from.
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

/// kList, kTuple.
struct PickleItemsNode : PickleNode {
  PickleItemsNode(PickleKind k, std::vector<PickleValue> values) : PickleNode(k), items(std::move(values)) {}
  std::vector<PickleValue> items;
};

/// kDict.
struct PickleDictNode : PickleNode {
  explicit PickleDictNode(std::vector<PickleEntry> values)
      : PickleNode(PickleKind::kDict), entries(std::move(values)) {}
  std::vector<PickleEntry> entries;
};

/// kName.
struct PickleNameNode : PickleNode {
  explicit PickleNameNode(PythonName n) : PickleNode(PickleKind::kName), name(std::move(n)) {}
  PythonName name;
};

/// kObject.
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

/// kPersistent.
struct PicklePersistentNode : PickleNode {
  explicit PicklePersistentNode(PickleValue i) : PickleNode(PickleKind::kPersistent), id(std::move(i)) {}
  PickleValue id;
};

}  // namespace cohort::base
