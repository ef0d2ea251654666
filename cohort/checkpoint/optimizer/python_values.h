/// Python's dicts as c10::IValue.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

#include <optional>
#include <string>
#include <vector>

#include "cohort/base/text/text.h"

namespace cohort::checkpoint::detail {

/// Returns a dict from str to any type.
inline c10::impl::GenericDict empty_dict() {
  return c10::impl::GenericDict(c10::StringType::get(), c10::AnyType::get());
}

/// Returns a dict from int to int, for collections.Counter in files: no other dict has this type of values.
inline c10::impl::GenericDict empty_counter() {
  return c10::impl::GenericDict(c10::IntType::get(), c10::NumberType::get());
}
inline bool is_counter(const c10::impl::GenericDict& dict) {
  return dict.valueType()->kind() == c10::TypeKind::NumberType;
}

/// Returns "weight" for a str, "3" for a number.
inline std::string key_text(const c10::IValue& key) {
  if (key.isString()) return key.toStringRef();
  return key.isInt() ? std::to_string(key.toInt()) : "(a key that is " + key.tagKind() + ")";
}

/// Absent if the dict lacks the key. Requires: `dict` is a dict.
inline std::optional<c10::IValue> find_entry(const c10::IValue& dict, const std::string& key) {
  for (const auto& entry : dict.toGenericDict()) {
    if (key_text(entry.key()) == key) return c10::IValue(entry.value());
  }
  return std::nullopt;
}

/// Returns None if the dict lacks the key.
inline c10::IValue entry_of(const c10::IValue& dict, const std::string& key) {
  return find_entry(dict, key).value_or(c10::IValue());
}

/// Returns `"model", "epoch"`, or "nothing" for an empty dict.
inline std::string keys_in_words(const c10::IValue& dict) {
  std::vector<std::string> keys;
  for (const auto& entry : dict.toGenericDict()) keys.push_back(key_text(entry.key()));
  return keys.empty() ? "nothing" : base::quoted_list(keys);
}

}  // namespace cohort::checkpoint::detail
