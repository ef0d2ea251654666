/// PickleConverter: what a pickle says (base/pickle/pickle_value.h) as LibTorch's values. Lists and dicts that the pickle
/// shares stay shared.
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
  /// `make`: the value that an object, a name or a persistent id stands for; throws c10::ValueError for what it does not know.
  /// Called once for each of them, however often the pickle refers to it.
  explicit PickleConverter(std::function<c10::IValue(const base::PickleValue&)> make) : make_(std::move(make)) {}

  /// A list whose items are all of one type is a list of that type, any other one of Any; likewise keys and values of dicts.
  c10::IValue convert(const base::PickleValue& value);
  /// The entries of a dict or of an object like one.
  c10::IValue convert_entries(const base::PickleValue& dict);

 private:
  c10::IValue convert_list(const std::vector<base::PickleValue>& items);
  c10::IValue convert_new(const base::PickleValue& value);

  std::function<c10::IValue(const base::PickleValue&)> make_;
  std::unordered_map<const void*, c10::IValue> made_;  // by identity; the tree outlives a conversion
};

/// One pickle. Throws c10::ValueError with the reader's text.
COHORT_EXTRAS_API base::PickleRead read_pickle_or_throw(std::string_view data,
                                                        const base::PickleReaderOptions& options);

/// In protocol 4. Throws c10::ValueError with the writer's text.
std::string write_pickle_or_throw(const base::PickleValue& value);

/// 0 or larger, each.
bool is_sizes(const base::PickleValue& tuple);
std::vector<int64_t> to_sizes(const base::PickleValue& tuple);

}  // namespace cohort::comm
