#include "cohort/files/tensors/plan/checkpoint_index.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "cohort/files/tensors/elements/checked_json.h"
#include "cohort/files/tensors/elements/crc32.h"
#include "cohort/files/tensors/elements/shown_text.h"

namespace cohort::files {
namespace {

using base::Error;
using base::Result;

constexpr int kIndexVersion = 1;
// A value may be as deep as a pickle, with three levels of JSON for each level.
constexpr size_t kMaxIndexDepth = 700;

Json json_of(const Region& region) {
  Json dims = Json::array();
  for (const auto& ranges : region) {
    Json list = Json::array();
    for (const IndexRange& range : ranges) list.push_back({range.begin, range.end});
    dims.push_back(std::move(list));
  }
  return dims;
}

Json json_of(const std::vector<CheckedPiece>& pieces) {
  Json list = Json::array();
  for (const CheckedPiece& piece : pieces) {
    list.push_back({{"crc32", piece.crc32}, {"region", json_of(piece.region)}});
  }
  return list;
}

// Returns everything of Cohort's part except its own checksum.
Json own_part(const CheckpointIndex& index) {
  Json own = {{"version", kIndexVersion}, {"files", Json::object()}, {"pieces", Json::object()}};
  for (const IndexedFile& file : index.files) {
    own["files"][file.name] = {{"bytes", file.num_bytes}, {"header_crc32", file.header_crc32}};
  }
  for (const auto& [name, pieces] : index.pieces) own["pieces"][name] = json_of(pieces);
  if (!index.complex128.empty()) own["complex128"] = index.complex128;
  own["values"] = index.values;
  own["metadata"] = index.metadata;
  return own;
}

uint32_t checksum_of(const Json& own, const Json& weight_map) { return crc32(own.dump() + weight_map.dump()); }

template <typename Number>
Result<Number> number_of(const Json& json, const char* key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (!json.is_object() || found == json.end() || !found->is_number_unsigned() ||
      found->template get<uint64_t>() > std::numeric_limits<Number>::max()) {
    return Error(std::string("\"") + key + "\" is not a whole number in its range");
  }
  return found->template get<Number>();
}

Result<Region> parse_region(const Json& json) {
  Region region;
  const Error malformed("a region is not a list of ranges for each dimension");
  if (!json.is_array()) return malformed;
  for (const Json& ranges : json) {
    if (!ranges.is_array()) return malformed;
    region.emplace_back();
    for (const Json& range : ranges) {
      const bool is_pair = range.is_array() && range.size() == 2 && range[0].is_number_unsigned() &&
                           range[1].is_number_unsigned() && range[1].get<uint64_t>() <= INT64_MAX &&
                           range[0].get<uint64_t>() < range[1].get<uint64_t>();
      if (!is_pair) return malformed;
      region.back().push_back({range[0].get<int64_t>(), range[1].get<int64_t>()});
    }
  }
  return region;
}

Result<std::vector<CheckedPiece>> parse_pieces(const Json& json) {
  std::vector<CheckedPiece> pieces;
  if (!json.is_array()) return Error("it is not a list");
  for (const Json& item : json) {
    Result<uint32_t> crc = number_of<uint32_t>(item, "crc32");
    if (!crc) return crc.error();
    Result<Region> region = parse_region(item.value("region", Json()));
    if (!region) return region.error();
    pieces.push_back({std::move(*region), *crc});
  }
  return pieces;
}

Result<void> parse_files(const Json& json, CheckpointIndex& index) {
  for (IndexedFile& file : index.files) {
    if (!json.contains(file.name)) return Error("does not describe the file " + quoted_name(file.name));
    Result<uint64_t> bytes = number_of<uint64_t>(json[file.name], "bytes");
    Result<uint32_t> crc = number_of<uint32_t>(json[file.name], "header_crc32");
    if (!bytes || !crc)
      return Error("file " + quoted_name(file.name) + ": " + (bytes ? crc.error() : bytes.error()).message());
    file.num_bytes = *bytes;
    file.header_crc32 = *crc;
  }
  return {};
}

Result<void> parse_complex128(const Json& json, CheckpointIndex& index) {
  if (!json.is_array()) return Error("has a \"complex128\" that is not a list");
  for (const Json& name : json) {
    if (!name.is_string() || !index.file_of.contains(name.get<std::string>()))
      return Error("says that " + shortened(name.dump()) + " is complex128, which is not a tensor of the checkpoint");
    index.complex128.insert(name.get<std::string>());
  }
  return {};
}

Result<void> parse_own(Json own, const Json& weight_map, CheckpointIndex& index) {
  if (!own.is_object()) return Error("is not an object");
  Result<uint32_t> checksum = number_of<uint32_t>(own, "crc32");
  if (!checksum) return checksum.error();
  Result<int> version = number_of<int>(own, "version");
  if (!version) return version.error();
  if (*version > kIndexVersion) {
    return Error("has version " + std::to_string(*version) + ", this library knows versions up to " +
                 std::to_string(kIndexVersion))
        .with_hint("load it with the release of Cohort that wrote it, or a newer one");
  }
  own.erase("crc32");
  if (checksum_of(own, weight_map) != *checksum) return Error("does not match its checksum: the file is damaged");
  for (const char* key : {"files", "pieces", "values", "metadata"}) {
    if (!own.contains(key) || !own[key].is_object()) return Error(std::string("has no object \"") + key + "\"");
  }
  if (Result<void> files = parse_files(own["files"], index); !files) return files;
  if (Result<void> parsed = parse_complex128(own.value("complex128", Json::array()), index); !parsed) return parsed;
  for (const auto& [name, json] : own["pieces"].items()) {
    Result<std::vector<CheckedPiece>> pieces = parse_pieces(json);
    if (!pieces) return Error("pieces of " + quoted_name(name) + ": " + pieces.error().message());
    index.pieces.emplace(name, std::move(*pieces));
  }
  for (const auto& [name, json] : own["values"].items()) index.values.emplace(name, json);
  for (const auto& [name, json] : own["metadata"].items()) {
    if (!json.is_string()) return Error("metadata " + quoted_name(name) + " is not a text");
    index.metadata.emplace(name, json.get<std::string>());
  }
  index.is_ours = true;
  return {};
}

}  // namespace

std::string file_name_problem(const std::string& name) {
  if (name.empty() || name == "." || name == "..") return "is not the name of a file";
  if (name.find('/') != std::string::npos) return "is not in the same folder";
  if (name.find('\0') != std::string::npos) return "has a zero byte";
  return "";
}

Result<std::string> format_checkpoint_index(const CheckpointIndex& index) {
  try {
    Json weight_map = Json::object();
    for (const auto& [name, file] : index.file_of) weight_map[name] = index.files[file].name;
    Json metadata = {{"total_size", index.total_size}};
    if (index.is_ours) {
      Json own = own_part(index);
      const uint32_t checksum = checksum_of(own, weight_map);
      own["crc32"] = checksum;
      metadata["cohort"] = std::move(own);
    }
    return Json({{"metadata", std::move(metadata)}, {"weight_map", std::move(weight_map)}}).dump(1) + "\n";
  } catch (const Json::exception& error) {
    return Error(std::string("a name or text is not UTF-8: ") + shortened(error.what()));
  }
}

Result<CheckpointIndex> parse_checkpoint_index(std::string_view text) {
  Result<CheckedJson> parsed = parse_checked_json(text, "index", kMaxIndexDepth);
  if (!parsed) return parsed.error();
  Json& json = parsed->json;
  if (!json.contains("weight_map") || !json["weight_map"].is_object()) return Error("the index has no weight_map");
  CheckpointIndex index;
  std::map<std::string, size_t> places;
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!file.is_string()) return Error("weight_map: the file of " + quoted_name(name) + " is not a text");
    const auto file_name = file.get<std::string>();
    if (const std::string problem = file_name_problem(file_name); !problem.empty()) {
      return Error("weight_map: the file of " + quoted_name(name) + ", " + quoted_name(file_name) + ", " + problem);
    }
    const auto [place, is_new] = places.try_emplace(file_name, index.files.size());
    if (is_new) index.files.push_back({file_name});
    index.file_of.emplace(name, place->second);
  }
  const Json metadata = json.value("metadata", Json::object());
  if (!metadata.is_object()) return Error("the metadata of the index are not an object");
  // Other libraries also write floating-point numbers here.
  if (metadata.contains("total_size") && metadata["total_size"].is_number_unsigned()) {
    index.total_size = metadata["total_size"].get<uint64_t>();
  }
  if (!metadata.contains("cohort")) return index;
  Result<void> own = parse_own(metadata["cohort"], json["weight_map"], index);
  if (own) return index;
  Error error("the part \"cohort\" of the index " + own.error().message());
  return own.error().hint().empty() ? std::move(error) : std::move(error).with_hint(own.error().hint());
}

}  // namespace cohort::files
