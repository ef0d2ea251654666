#include "cohort/files/tensors/elements/plain_json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cohort/files/tensors/elements/shown_text.h"

namespace cohort::files {
namespace {

using base::Error;
using base::PickleEntry;
using base::PickleKind;
using base::PickleValue;
using base::Result;

Json float_json(double value) {
  if (std::isnan(value)) return {{"float", "nan"}};
  if (std::isinf(value)) return {{"float", value > 0 ? "inf" : "-inf"}};
  return value;
}

std::string to_hex(std::string_view bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

std::optional<std::string> from_hex(const std::string& text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    int byte = 0;
    for (const char letter : {text[i], text[i + 1]}) {
      const int digit = letter >= '0' && letter <= '9'   ? letter - '0'
                        : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10
                                                         : -1;
      if (digit < 0) return std::nullopt;
      byte = byte * 16 + digit;
    }
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

class PlainWriter {
 public:
  Result<Json> write(const PickleValue& value) {
    // A pickle can describe a value of any size in few bytes, with one that contains another twice, and so on.
    if (++num_values_ > kMaxValues) return Error("it has more than " + std::to_string(kMaxValues) + " parts");
    switch (value.kind()) {
      case PickleKind::kNone:
        return Json();
      case PickleKind::kBool:
        return Json(value.to_bool());
      case PickleKind::kInt:
        return Json(value.to_int());
      case PickleKind::kFloat:
        return float_json(value.to_float());
      case PickleKind::kComplex:
        return Json{
            {"complex", Json::array({float_json(value.to_complex().real()), float_json(value.to_complex().imag())})}};
      case PickleKind::kText:
        return Json(std::string(value.text()));
      case PickleKind::kBytes:
        return Json{{"bytes", to_hex(value.text())}};
      case PickleKind::kList:
        return write_items(value.items());
      case PickleKind::kTuple:
        return tagged("tuple", write_items(value.items()));
      case PickleKind::kDict:
        return tagged("dict", write_entries(value.entries()));
      default:
        return Error("it holds a " + std::string(base::kind_text(value.kind())));
    }
  }

 private:
  static constexpr int kMaxValues = 10'000'000;

  static Result<Json> tagged(const char* tag, Result<Json> json) {
    if (!json) return json;
    return Json{{tag, std::move(*json)}};
  }

  Result<Json> write_items(const std::vector<PickleValue>& items) {
    Json list = Json::array();
    for (const PickleValue& item : items) {
      Result<Json> json = write(item);
      if (!json) return json;
      list.push_back(std::move(*json));
    }
    return list;
  }

  Result<Json> write_entries(const std::vector<PickleEntry>& entries) {
    Json list = Json::array();
    for (const PickleEntry& entry : entries) {
      Result<Json> pair = write_items({entry.key, entry.value});
      if (!pair) return pair;
      list.push_back(std::move(*pair));
    }
    return list;
  }

  int num_values_ = 0;
};

Error no_plain_value(const Json& json) {
  return Error("not a plain value: " + shortened(json.dump(-1, ' ', true, Json::error_handler_t::replace)));
}

std::optional<double> float_of(const Json& json) {
  if (json.is_number_float()) return json.get<double>();
  if (!json.is_object() || json.size() != 1 || !json.contains("float") || !json["float"].is_string())
    return std::nullopt;
  const auto text = json["float"].get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

class PlainReader {
 public:
  Result<PickleValue> read(const Json& json, int depth) {
    if (depth > base::kMaxPickleDepth)
      return Error("a value is nested deeper than " + std::to_string(base::kMaxPickleDepth));
    if (json.is_null()) return PickleValue();
    if (json.is_boolean()) return PickleValue::of_bool(json.get<bool>());
    if (const auto number = float_of(json)) return PickleValue::of_float(*number);
    if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX) return no_plain_value(json);
    if (json.is_number_integer()) return PickleValue::of_int(json.get<int64_t>());
    if (json.is_string()) return PickleValue::of_text(json.get<std::string>());
    if (json.is_array()) {
      Result<std::vector<PickleValue>> items = read_items(json, depth);
      return items ? Result<PickleValue>(PickleValue::list(std::move(*items))) : items.error();
    }
    if (!json.is_object() || json.size() != 1) return no_plain_value(json);
    return read_tagged(json.begin().key(), json.begin().value(), depth);
  }

 private:
  Result<std::vector<PickleValue>> read_items(const Json& list, int depth) {
    std::vector<PickleValue> items;
    for (const Json& item : list) {
      Result<PickleValue> value = read(item, depth + 1);
      if (!value) return value.error();
      items.push_back(std::move(*value));
    }
    return items;
  }

  Result<PickleValue> read_tagged(const std::string& tag, const Json& json, int depth) {
    if (tag == "bytes" && json.is_string()) {
      auto bytes = from_hex(json.get<std::string>());
      return bytes ? Result<PickleValue>(PickleValue::of_bytes(std::move(*bytes))) : no_plain_value(json);
    }
    if (!json.is_array()) return no_plain_value(json);
    if (tag == "dict") return read_dict(json, depth);
    if (tag == "complex" && json.size() == 2) {
      const auto real = float_of(json[0]);
      const auto imaginary = float_of(json[1]);
      return real && imaginary ? Result<PickleValue>(PickleValue::of_complex({*real, *imaginary}))
                               : no_plain_value(json);
    }
    if (tag != "tuple") return no_plain_value(json);
    Result<std::vector<PickleValue>> items = read_items(json, depth);
    return items ? Result<PickleValue>(PickleValue::tuple(std::move(*items))) : items.error();
  }

  Result<PickleValue> read_dict(const Json& list, int depth) {
    std::vector<PickleEntry> entries;
    for (const Json& pair : list) {
      if (!pair.is_array() || pair.size() != 2) return no_plain_value(pair);
      Result<std::vector<PickleValue>> items = read_items(pair, depth);
      if (!items) return items.error();
      entries.push_back({std::move((*items)[0]), std::move((*items)[1])});
    }
    return PickleValue::dict(std::move(entries));
  }
};

}  // namespace

Result<Json> plain_json(const PickleValue& value) { return PlainWriter().write(value); }

Result<PickleValue> plain_value(const Json& json) { return PlainReader().read(json, 0); }

}  // namespace cohort::files
