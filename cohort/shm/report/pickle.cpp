#include "cohort/shm/report/pickle.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "cohort/base/pickle_writer.h"

namespace cohort::shm {
namespace {

using Json = nlohmann::ordered_json;
namespace opcode = base::pickle_opcode;

// dump() is what replaces bytes that are not UTF-8, parse() takes away its quotes.
std::string valid_text(const Json& text) {
  return Json::parse(text.dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

void put(base::PickleWriter& writer, const Json& value) {
  if (value.is_boolean()) {
    writer.put_bool(value.get<bool>());
  } else if (value.is_number_integer()) {
    writer.put_long(value.get<int64_t>());
  } else if (value.is_number_float()) {
    writer.put_double(value.get<double>());
  } else if (value.is_string()) {
    writer.put_text(valid_text(value));
  } else if (value.is_array()) {
    writer.put({opcode::kEmptyList, opcode::kMark});
    for (const Json& item : value) put(writer, item);
    writer.put(opcode::kAppends);
  } else if (value.is_object()) {
    writer.put({opcode::kEmptyDict, opcode::kMark});
    for (const auto& [key, item] : value.items()) {
      writer.put_text(valid_text(key));
      put(writer, item);
    }
    writer.put(opcode::kSetItems);
  } else {
    writer.put_none();
  }
}

}  // namespace

std::string pickle(const Json& value) {
  base::PickleWriter writer(2);
  put(writer, value);
  return writer.finish();
}

}  // namespace cohort::shm
