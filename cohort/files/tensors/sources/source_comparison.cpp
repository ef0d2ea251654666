#include "cohort/files/tensors/sources/source_comparison.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "cohort/files/tensors/elements/elements.h"
#include "cohort/files/tensors/elements/plain_json.h"
#include "cohort/files/tensors/sources/tensor_pieces.h"

namespace cohort::files {
namespace {

using TensorPlaces = std::map<std::string, size_t>;

TensorPlaces places_of(const TensorSource& source) {
  TensorPlaces places;
  for (size_t i = 0; i < source.tensors().size(); ++i) places.emplace(source.tensors()[i].name, i);
  return places;
}

std::map<std::string, std::string> values_of(const TensorSource& source) {
  std::map<std::string, std::string> values;
  for (const PlainEntry& entry : source.contents().values) {
    const auto json = plain_json(entry.value);
    values.emplace(entry.name, json ? json->dump(-1, ' ', false, Json::error_handler_t::replace) : "?");
  }
  return values;
}

bool is_same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void compare_pieces(std::string_view first, std::string_view second, TensorPair& pair) {
  if (pair.same_dtype() && first == second) return;
  std::vector<double> a, b;
  append_numbers(pair.first.dtype, first, a);
  append_numbers(pair.second.dtype, second, b);
  const auto size = static_cast<size_t>(info_of(pair.first.dtype).size);
  const size_t step = std::max(components_of(pair.first.dtype), components_of(pair.second.dtype));
  for (size_t i = 0; i < a.size(); i += step) {
    bool is_same = true, is_finite = true;
    for (size_t part = i; part < i + step; ++part) {
      if (is_same_number(a[part], b[part])) continue;
      is_same = false;
      const double difference = std::fabs(a[part] - b[part]);
      if (std::isfinite(difference)) pair.max_difference = std::max(pair.max_difference, difference);
      is_finite = is_finite && std::isfinite(difference);
    }
    // Integers beyond 2^53 may be equal as doubles and yet differ.
    if (is_same && pair.same_dtype() && !is_inexact(pair.first.dtype)) {
      is_same = first.substr(i * size, size) == second.substr(i * size, size);
    }
    pair.num_different += is_same ? 0 : 1;
    pair.num_not_finite += is_finite ? 0 : 1;
  }
}

// Compares two tensors of one shape.
base::Result<void> compare_elements(const TensorSource& first, size_t in_first, const TensorSource& second,
                                    size_t in_second, TensorPair& pair) {
  if (components_of(pair.first.dtype) != components_of(pair.second.dtype)) return {};
  const auto size = static_cast<uint64_t>(info_of(pair.first.dtype).size);
  const auto other_size = static_cast<uint64_t>(info_of(pair.second.dtype).size);
  std::vector<char> other;
  return for_each_piece(first, in_first, [&](std::string_view bytes, uint64_t first_byte) -> base::Result<void> {
    other.resize(bytes.size() / size * other_size);
    if (auto read = second.read(in_second, first_byte / size * other_size, other); !read) return read;
    compare_pieces(bytes, {other.data(), other.size()}, pair);
    return {};
  });
}

template <typename Map>
void add_missing(const Map& names, const Map& others, std::vector<std::string>& to) {
  for (const auto& [name, unused] : names) {
    if (!others.contains(name)) to.push_back(name);
  }
}

}  // namespace

base::Result<SourceComparison> compare_sources(const TensorSource& first, const TensorSource& second) {
  SourceComparison result;
  const auto first_places = places_of(first), second_places = places_of(second);
  add_missing(first_places, second_places, result.only_in_first);
  add_missing(second_places, first_places, result.only_in_second);
  for (const auto& [name, in_first] : first_places) {
    const auto found = second_places.find(name);
    if (found == second_places.end()) continue;
    TensorPair pair{.first = first.tensors()[in_first], .second = second.tensors()[found->second]};
    if (pair.same_shape()) {
      if (auto compared = compare_elements(first, in_first, second, found->second, pair); !compared)
        return compared.error();
    }
    pair.is_same() ? void(++result.num_same) : result.tensors.push_back(std::move(pair));
  }
  const auto first_values = values_of(first), second_values = values_of(second);
  add_missing(first_values, second_values, result.only_in_first);
  add_missing(second_values, first_values, result.only_in_second);
  for (const auto& [name, value] : first_values) {
    const auto found = second_values.find(name);
    if (found == second_values.end()) continue;
    found->second == value ? void(++result.num_same) : result.values.push_back({name, value, found->second});
  }
  return result;
}

}  // namespace cohort::files
