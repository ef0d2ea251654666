/// The kinds of stores that the conformance tests go over: each makes clients of one content.
#pragma once

#include <memory>
#include <string>

#include "cohort/store/keys/store.h"

namespace cohort::store {

class StoreKind {
 public:
  virtual ~StoreKind() = default;
  /// Another client of the same content, as a process of its own would have.
  virtual std::unique_ptr<Store> open() = 0;
  /// How messages name a key.
  virtual std::string shown(const std::string& key) const { return key; }
};

/// "hash", "file", "prefix", "tcp" or "etcd".
std::unique_ptr<StoreKind> make_store_kind(const std::string& name);

}  // namespace cohort::store
