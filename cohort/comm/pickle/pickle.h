/// Python's pickle format for plain values: what object collectives exchange with C++ and Python ranks.
///
/// None, bool, int, float, complex, str, bytes, list, tuple, dict and tensors (CPU copies, strided). Nothing is imported or
/// executed: the few Python names that plain values and tensors are made with are recognised, every other name is an error
/// that says which. Sizes are checked against what is there before memory is taken, and nesting stops at kMaxPickleDepth.
///
/// A list whose items are all of one type becomes a list of that type (so that toIntVector() works), any other a list of
/// Any; the same for the keys and values of a dict.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <string_view>

#include "cohort/export.h"

namespace cohort::comm {

/// Python's bytes as an IValue; IValue's own string is Python's str.
COHORT_API c10::IValue bytes_value(std::string bytes);
COHORT_API bool is_bytes(const c10::IValue& value);
/// Throws c10::ValueError if `value` is not made by bytes_value. The reference lives as long as the value.
COHORT_API const std::string& bytes_of(const c10::IValue& value);

constexpr int kMaxPickleDepth = 200;

/// Protocol 4, as Python writes it since 3.8; pickle.loads reads it back equal.
/// Throws c10::ValueError for values without a plain form: strings that are not UTF-8 (use bytes_value), sparse or
/// undefined tensors, objects; and for deeper nesting.
COHORT_API std::string pickle(const c10::IValue& value);
COHORT_API std::string pickle_bytes(std::string_view bytes);

/// Reads protocols 0 to 5. Bytes after the end of the pickle are ignored, as by pickle.loads.
/// Throws c10::ValueError, with the position, for anything else.
COHORT_API c10::IValue unpickle(std::string_view data);

}  // namespace cohort::comm
