/// PickleConverter: converts the values of a pickle (base/pickle/pickle_value.h) to LibTorch's. Lists and dicts to which a pickle
/// refers several times stay shared.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/base/pickle/pickle_reader.h"
#include "cohort/export.h"

namespace cohort::comm {

class COHORT_EXTRAS_API PickleConverter {
 public:
  /// `make`: returns the value of an object, a name or a persistent id; throws c10::ValueError for those it does not know.
  /// Called once for each of them, however often the pickle refers to it.
  explicit PickleConverter(std::function<c10::IValue(const base::PickleValue&)> make) : make_(std::move(make)) {}

  /// A list whose items are all of one type becomes a list of that type, any other list of Any; likewise keys and values of
  /// dicts.
  c10::IValue convert(const base::PickleValue& value);
  /// Converts the entries of a dict or of an object like one.
  c10::IValue convert_entries(const base::PickleValue& dict);

 private:
  c10::IValue convert_list(const std::vector<base::PickleValue>& items);
  c10::IValue convert_new(const base::PickleValue& value);

  std::function<c10::IValue(const base::PickleValue&)> make_;
  std::unordered_map<const void*, c10::IValue> made_;  // by identity; the tree outlives a conversion
};

/// Reads one pickle. Throws c10::ValueError with the reader's text.
COHORT_EXTRAS_API base::PickleRead read_pickle_or_throw(std::string_view data,
                                                        const base::PickleReaderOptions& options);

/// Writes protocol 4. Throws c10::ValueError with the writer's text.
std::string write_pickle_or_throw(const base::PickleValue& value);

/// Whether every entry is a number of at least 0.
bool is_sizes(const base::PickleValue& tuple);
std::vector<int64_t> to_sizes(const base::PickleValue& tuple);

}  // namespace cohort::comm
