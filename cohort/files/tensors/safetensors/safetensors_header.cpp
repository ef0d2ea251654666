#include "cohort/files/tensors/safetensors/safetensors_header.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "cohort/files/tensors/elements/checked_json.h"
#include "cohort/files/tensors/elements/shown_text.h"

namespace cohort::files {
namespace {

using base::Error;
using base::Result;

constexpr const char* kMetadataKey = "__metadata__";
/// The size of the header's length, which comes before its text.
constexpr size_t kLengthBytes = 8;
/// Data begin at a cache line, as tensors in memory do; the format itself requires 8.
constexpr size_t kLineBytes = 64;

Error tensor_error(const std::string& name, const std::string& reason) {
  return Error(std::string("tensor ") + quoted_name(name) + ": " + reason);
}

std::string interval(const SafetensorsEntry& entry) {
  return "[" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + "]";
}

Result<std::map<std::string, std::string>> parse_metadata(const Json& json) {
  std::map<std::string, std::string> metadata;
  if (!json.is_object()) return Error("__metadata__ is not an object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string())
      return Error(std::string("__metadata__: the value of ") + quoted_name(key) + " is not a string");
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

Result<Dtype> parse_dtype(const std::string& tensor, const Json& info) {
  if (!info.contains("dtype") || !info["dtype"].is_string()) return tensor_error(tensor, "has no dtype");
  const auto name = info["dtype"].get<std::string>();
  const auto dtype = dtype_of_safetensors_name(name);
  if (!dtype) return tensor_error(tensor, std::string("unknown dtype ") + quoted_name(name));
  return *dtype;
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

Result<SafetensorsEntry> parse_entry(const std::string& name, const Json& info, uint64_t num_data_bytes) {
  if (!info.is_object()) return tensor_error(name, "is not described by an object");
  SafetensorsEntry entry{.name = name};
  Result<Dtype> dtype = parse_dtype(name, info);
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
  const std::optional<uint64_t> expected = tensor_bytes(entry.dtype, entry.shape);
  if (!expected) return tensor_error(name, "its size overflows 64 bits");
  if (*expected != entry.end - entry.begin) {
    return tensor_error(name, std::string("data_offsets ") + interval(entry) + " hold " +
                                  std::to_string(entry.end - entry.begin) + " bytes, but its dtype and shape need " +
                                  std::to_string(*expected));
  }
  return entry;
}

// Sorted by place, each tensor must begin at the end of the previous one, and the last must end at the end of the file.
Result<void> check_places(const std::vector<SafetensorsEntry>& entries, uint64_t num_data_bytes) {
  std::vector<const SafetensorsEntry*> sorted;
  for (const SafetensorsEntry& entry : entries) sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(), [](const SafetensorsEntry* a, const SafetensorsEntry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  uint64_t reached = 0;
  for (const SafetensorsEntry* entry : sorted) {
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

std::optional<uint64_t> tensor_bytes(Dtype dtype, const std::vector<int64_t>& shape) {
  int64_t count = info_of(dtype).size;
  for (const int64_t length : shape) {
    if (__builtin_mul_overflow(count, length, &count)) return std::nullopt;
  }
  return static_cast<uint64_t>(count);
}

std::vector<size_t> place_entries(std::vector<SafetensorsEntry>& entries) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Tensors must not have gaps, so those that fill cache lines come first: a tensor that begins in the middle of a line is copied
  // at half speed.
  const auto rank = [&](size_t index) {
    const SafetensorsEntry& entry = entries[index];
    const bool fills_lines = tensor_bytes(entry.dtype, entry.shape).value() % kLineBytes == 0;
    return std::pair(!fills_lines, -info_of(entry.dtype).size);
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank(a) < rank(b); });
  uint64_t place = 0;
  for (const size_t index : order) {
    entries[index].begin = place;
    place += tensor_bytes(entries[index].dtype, entries[index].shape).value();
    entries[index].end = place;
  }
  return order;
}

Result<std::string> format_safetensors_header(const SafetensorsHeader& header) {
  std::string text;
  try {
    if (!header.metadata.empty()) text = quoted_name(kMetadataKey) + ":" + Json(header.metadata).dump();
    for (const SafetensorsEntry& entry : header.entries) {
      if (entry.name == kMetadataKey) return tensor_error(entry.name, "this name is reserved by the file format");
      const std::string dtype(info_of(entry.dtype).safetensors_name);
      if (dtype.empty()) {
        return tensor_error(entry.name,
                            std::string("the format has no name for ") + std::string(info_of(entry.dtype).torch_name));
      }
      const Json info = {{"dtype", dtype}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
      if (!text.empty()) text += ',';
      text += Json(entry.name).dump() + ":" + info.dump();
    }
  } catch (const Json::exception& error) {
    return Error(std::string("a name or metadata text is not UTF-8: ") + shortened(error.what()));
  }
  text.insert(text.begin(), '{');
  text.push_back('}');
  text.append((kLineBytes - (kLengthBytes + text.size()) % kLineBytes) % kLineBytes, ' ');
  if (text.size() > kMaxSafetensorsHeaderBytes) {
    return Error(std::string("the header has ") + std::to_string(text.size()) + " bytes, the format allows " +
                 std::to_string(kMaxSafetensorsHeaderBytes));
  }
  return text;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, uint64_t num_data_bytes) {
  Result<CheckedJson> parsed = parse_checked_json(text, "header");
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
    Result<SafetensorsEntry> entry = parse_entry(name, info, num_data_bytes);
    if (!entry) return entry.error();
    header.entries.push_back(std::move(*entry));
  }
  Result<void> places = check_places(header.entries, num_data_bytes);
  if (!places) return places.error();
  return header;
}

}  // namespace cohort::files
