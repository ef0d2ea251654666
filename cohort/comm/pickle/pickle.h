/// Python's pickle format for plain values, which object collectives exchange with C++ and Python ranks.
///
/// Values: None, bool, int, float, complex, str, bytes, list, tuple, dict and tensors (CPU copies, strided). Nothing is imported
/// or executed: the reader knows the few Python names that plain values and tensors need; any other name is an error that
/// states it. Sizes are checked against the data before memory is allocated, and nesting stops at kMaxPickleDepth.
///
/// A list whose items are all of one type becomes a list of that type (so that toIntVector() works), any other list a list of
/// Any; the same holds for the keys and values of a dict.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <string_view>

#include "cohort/export.h"

namespace cohort::comm {

/// Returns Python's bytes as an IValue; a string in an IValue is Python's str.
COHORT_API c10::IValue bytes_value(std::string bytes);
COHORT_API bool is_bytes(const c10::IValue& value);
/// Throws c10::ValueError if `value` was not made with bytes_value. The reference is valid as long as the value.
COHORT_API const std::string& bytes_of(const c10::IValue& value);

constexpr int kMaxPickleDepth = 200;

/// Writes protocol 4, Python's default since 3.8; pickle.loads reads an equal value.
/// Throws c10::ValueError for values without a plain form: strings that are not UTF-8 (use bytes_value), sparse or
/// undefined tensors, objects; and for nesting deeper than kMaxPickleDepth.
COHORT_API std::string pickle(const c10::IValue& value);
COHORT_API std::string pickle_bytes(std::string_view bytes);

/// Reads protocols 0 to 5. Ignores bytes after the end of the pickle, as pickle.loads does.
/// Throws c10::ValueError, with the position, for anything else.
COHORT_API c10::IValue unpickle(std::string_view data);

}  // namespace cohort::comm
