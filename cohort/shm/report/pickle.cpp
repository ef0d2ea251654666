#include "cohort/shm/report/pickle.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cohort/base/pickle/pickle_writer.h"

namespace cohort::shm {
namespace {

using Json = nlohmann::ordered_json;
using base::PickleValue;

// dump() replaces bytes that are not UTF-8; parse() removes its quotes.
std::string valid_text(const Json& text) {
  return Json::parse(text.dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

PickleValue value_of(const Json& json) {
  if (json.is_boolean()) return PickleValue::of_bool(json.get<bool>());
  if (json.is_number_integer()) return PickleValue::of_int(json.get<int64_t>());
  if (json.is_number_float()) return PickleValue::of_float(json.get<double>());
  if (json.is_string()) return PickleValue::of_text(valid_text(json));
  if (json.is_array()) {
    std::vector<PickleValue> items;
    for (const Json& item : json) items.push_back(value_of(item));
    return PickleValue::list(std::move(items));
  }
  if (!json.is_object()) return {};
  std::vector<base::PickleEntry> entries;
  for (const auto& [key, item] : json.items()) {
    entries.push_back({PickleValue::of_text(valid_text(key)), value_of(item)});
  }
  return PickleValue::dict(std::move(entries));
}

}  // namespace

std::string pickle(const Json& value) { return base::write_pickle(value_of(value), 2).value(); }

}  // namespace cohort::shm
