#include "cohort/checkpoint/safetensors_header.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "cohort/base/json_text.h"

namespace cohort::checkpoint {
namespace {

using Json = nlohmann::json;
using base::Error;
using base::Result;

constexpr const char* kMetadataKey = "__metadata__";
// A description needs 3.
constexpr size_t kMaxDepth = 64;

constexpr std::array<std::pair<std::string_view, c10::ScalarType>, 19> kDtypes{{
    {"F64", c10::ScalarType::Double},
    {"F32", c10::ScalarType::Float},
    {"F16", c10::ScalarType::Half},
    {"BF16", c10::ScalarType::BFloat16},
    {"I64", c10::ScalarType::Long},
    {"I32", c10::ScalarType::Int},
    {"I16", c10::ScalarType::Short},
    {"I8", c10::ScalarType::Char},
    {"U8", c10::ScalarType::Byte},
    {"BOOL", c10::ScalarType::Bool},
    {"F8_E4M3", c10::ScalarType::Float8_e4m3fn},
    {"F8_E5M2", c10::ScalarType::Float8_e5m2},
    {"F8_E4M3FNUZ", c10::ScalarType::Float8_e4m3fnuz},
    {"F8_E5M2FNUZ", c10::ScalarType::Float8_e5m2fnuz},
    {"F8_E8M0", c10::ScalarType::Float8_e8m0fnu},
    {"U64", c10::ScalarType::UInt64},
    {"U32", c10::ScalarType::UInt32},
    {"U16", c10::ScalarType::UInt16},
    {"C64", c10::ScalarType::ComplexFloat},
}};

// What stands in a damaged file may be long and not be text; neither belongs on a terminal.
std::string shortened(std::string text) {
  constexpr size_t kMaxShown = 200;
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  std::replace_if(
      text.begin(), text.end(), [](unsigned char letter) { return letter < 0x20 || letter >= 0x7f; }, '?');
  return text;
}

std::string quoted(const std::string& text) { return c10::str('"', text.size() > 200 ? shortened(text) : text, '"'); }

Error tensor_error(const std::string& name, const std::string& reason) {
  return Error(std::string("tensor ") + quoted(name) + ": " + reason);
}

std::string interval(const TensorEntry& entry) { return c10::str("[", entry.begin, ", ", entry.end, "]"); }

// What a parsed object does not tell: the order of its keys, and whether one comes twice. Reads the text by itself; the
// library's callbacks while it parses would look at all tensors before, for each tensor.
class KeyWatcher final : public nlohmann::json_sax<Json> {
 public:
  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool key(std::string& text) override {
    const std::string& key = text;
    const bool is_name = keys_.size() == 1;
    if (is_name) names_.push_back(key);
    if (!keys_.back().insert(key).second && !duplicate_) {
      duplicate_ = std::string(is_name ? "the name " : "the key ") + quoted(key) + " comes twice";
    }
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(Json::number_integer_t) override { return true; }
  bool number_unsigned(Json::number_unsigned_t) override { return true; }
  bool number_float(Json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override { return false; }

  const std::optional<std::string>& duplicate() const { return duplicate_; }
  std::vector<std::string>& names() { return names_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::vector<std::string> names_;
  std::optional<std::string> duplicate_;
};

struct ParsedText {
  Json json;
  std::vector<std::string> names;
};

Result<ParsedText> parse_json(std::string_view text) {
  if (text.empty() || text.front() != '{') return Error("the header does not begin with {");
  // The library's functions call themselves for what is nested: too deep, and they take more stack than there is.
  if (base::json_depth(text) > kMaxDepth) return Error("the header is nested deeper than any description of tensors");
  KeyWatcher watcher;
  try {
    Json::sax_parse(text.begin(), text.end(), &watcher);
    Json json = Json::parse(text.begin(), text.end());
    if (watcher.duplicate()) return Error(*watcher.duplicate());
    return ParsedText{std::move(json), std::move(watcher.names())};
  } catch (const Json::exception& error) {
    return Error(std::string("the header is not JSON: ") + shortened(error.what()));
  }
}

Result<std::map<std::string, std::string>> parse_metadata(const Json& json) {
  std::map<std::string, std::string> metadata;
  if (!json.is_object()) return Error("__metadata__ is not an object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) return Error(std::string("__metadata__: the value of ") + quoted(key) + " is not a string");
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

Result<c10::ScalarType> parse_dtype(const std::string& tensor, const Json& info) {
  if (!info.contains("dtype") || !info["dtype"].is_string()) return tensor_error(tensor, "has no dtype");
  const auto name = info["dtype"].get<std::string>();
  for (const auto& [known, dtype] : kDtypes) {
    if (known == name) return dtype;
  }
  return tensor_error(tensor, std::string("unknown dtype ") + quoted(name));
}

Result<std::vector<uint64_t>> parse_numbers(const std::string& tensor, const Json& info, const char* key) {
  if (!info.contains(key) || !info[key].is_array()) return tensor_error(tensor, std::string("has no ") + key);
  std::vector<uint64_t> numbers;
  for (const Json& number : info[key]) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() > INT64_MAX) {
      return tensor_error(tensor, std::string(key) + " holds " + shortened(number.dump()) +
                                      ", which is not a whole number in [0, 2^63)");
    }
    numbers.push_back(number.get<uint64_t>());
  }
  return numbers;
}

Result<uint64_t> num_bytes(const TensorEntry& entry) {
  int64_t count = static_cast<int64_t>(c10::elementSize(entry.dtype));
  for (const int64_t length : entry.shape) {
    if (__builtin_mul_overflow(count, length, &count)) return tensor_error(entry.name, "its size overflows 64 bits");
  }
  return static_cast<uint64_t>(count);
}

Result<TensorEntry> parse_entry(const std::string& name, const Json& info, uint64_t num_data_bytes) {
  if (!info.is_object()) return tensor_error(name, "is not described by an object");
  TensorEntry entry{.name = name};
  Result<c10::ScalarType> dtype = parse_dtype(name, info);
  if (!dtype) return dtype.error();
  entry.dtype = *dtype;
  Result<std::vector<uint64_t>> shape = parse_numbers(name, info, "shape");
  if (!shape) return shape.error();
  entry.shape.assign(shape->begin(), shape->end());
  Result<std::vector<uint64_t>> offsets = parse_numbers(name, info, "data_offsets");
  if (!offsets) return offsets.error();
  if (offsets->size() != 2) return tensor_error(name, "data_offsets are not two numbers");
  entry.begin = (*offsets)[0];
  entry.end = (*offsets)[1];
  if (entry.begin > entry.end)
    return tensor_error(name, std::string("data_offsets ") + interval(entry) + " end before they begin");
  if (entry.end > num_data_bytes) {
    return tensor_error(name, std::string("data_offsets ") + interval(entry) + " reach past the " +
                                  std::to_string(num_data_bytes) + " bytes of data in the file");
  }
  Result<uint64_t> expected = num_bytes(entry);
  if (!expected) return expected.error();
  if (*expected != entry.end - entry.begin) {
    return tensor_error(name, std::string("data_offsets ") + interval(entry) + " hold " +
                                  std::to_string(entry.end - entry.begin) + " bytes, but its dtype and shape need " +
                                  std::to_string(*expected));
  }
  return entry;
}

// Sorted by place, each tensor must begin where the one before it ends, and the last must end with the file.
Result<void> check_places(const std::vector<TensorEntry>& entries, uint64_t num_data_bytes) {
  std::vector<const TensorEntry*> sorted;
  for (const TensorEntry& entry : entries) sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  uint64_t reached = 0;
  for (const TensorEntry* entry : sorted) {
    if (entry->begin < reached) {
      return tensor_error(entry->name, std::string("data_offsets ") + interval(*entry) +
                                           " overlap the tensor before, which ends at " + std::to_string(reached));
    }
    if (entry->begin > reached) {
      return tensor_error(entry->name, std::string("data_offsets ") + interval(*entry) +
                                           " leave a gap: the data before ends at " + std::to_string(reached));
    }
    reached = entry->end;
  }
  if (reached == num_data_bytes) return {};
  return Error(std::string("the tensors end at byte ") + std::to_string(reached) + ", but the file has " +
               std::to_string(num_data_bytes) + " bytes of data");
}

}  // namespace

std::optional<std::string_view> dtype_name(c10::ScalarType dtype) {
  for (const auto& [name, known] : kDtypes) {
    if (known == dtype) return name;
  }
  return std::nullopt;
}

Result<std::string> format_header(const SafetensorsHeader& header) {
  std::string text;
  try {
    if (!header.metadata.empty()) text = quoted(kMetadataKey) + ":" + Json(header.metadata).dump();
    for (const TensorEntry& entry : header.entries) {
      if (entry.name == kMetadataKey) return tensor_error(entry.name, "this name is reserved by the file format");
      const Json info = {{"dtype", std::string(dtype_name(entry.dtype).value())},
                         {"shape", entry.shape},
                         {"data_offsets", {entry.begin, entry.end}}};
      if (!text.empty()) text += ',';
      text += Json(entry.name).dump() + ":" + info.dump();
    }
  } catch (const Json::exception& error) {
    return Error(std::string("a name or metadata text is not UTF-8: ") + shortened(error.what()));
  }
  text.insert(text.begin(), '{');
  text.push_back('}');
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMaxHeaderBytes) {
    return Error(std::string("the header has ") + std::to_string(text.size()) + " bytes, the format allows " +
                 std::to_string(kMaxHeaderBytes));
  }
  return text;
}

Result<SafetensorsHeader> parse_header(std::string_view text, uint64_t num_data_bytes) {
  Result<ParsedText> parsed = parse_json(text);
  if (!parsed) return parsed.error();
  SafetensorsHeader header;
  for (const std::string& name : parsed->names) {
    const Json& info = parsed->json[name];
    if (name == kMetadataKey) {
      auto metadata = parse_metadata(info);
      if (!metadata) return metadata.error();
      header.metadata = std::move(*metadata);
      continue;
    }
    Result<TensorEntry> entry = parse_entry(name, info, num_data_bytes);
    if (!entry) return entry.error();
    header.entries.push_back(std::move(*entry));
  }
  Result<void> places = check_places(header.entries, num_data_bytes);
  if (!places) return places.error();
  return header;
}

}  // namespace cohort::checkpoint
