#include "cohort/files/checkpoints/manifest.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <set>

#include "cohort/base/text/json_text.h"
#include "cohort/base/text/text.h"
#include "cohort/files/tensors/elements/checked_json.h"
#include "cohort/files/tensors/elements/crc32.h"
#include "cohort/files/tensors/elements/shown_text.h"

namespace cohort::files {
namespace {

using ManifestJson = nlohmann::ordered_json;
constexpr int64_t kManifestVersion = 1;
constexpr size_t kMaxDepth = 3;

base::Error not_a_manifest(const std::string& why) {
  return base::Error("it is not a manifest of a checkpoint: " + why);
}

// Whether the name is inside the folder: "a" and "a/b", but not "", "/a", "a/", "a//b", "../a" or "a/./b".
bool is_inside(const std::string& name) {
  if (name.find('\0') != std::string::npos) return false;
  const auto parts = base::split(name, '/');
  return std::none_of(parts.begin(), parts.end(),
                      [](const std::string& part) { return part.empty() || part == "." || part == ".."; });
}

// Returns what is wrong, or an empty text.
std::string take_number(const ManifestJson& object, const char* key, int64_t max, int64_t& to) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return fmt::format("it has no number \"{}\"", key);
  const auto number = found->get<uint64_t>();
  if (number > static_cast<uint64_t>(max)) return fmt::format("\"{}\" is {}, which is too large", key, number);
  to = static_cast<int64_t>(number);
  return {};
}

std::string take_files(const ManifestJson& object, std::vector<ManifestFile>& to) {
  const auto list = object.find("files");
  if (list == object.end() || !list->is_array()) return "it has no list \"files\"";
  std::set<std::string> names;
  for (const ManifestJson& item : *list) {
    if (!item.is_object() || !item.contains("name") || !item["name"].is_string()) return "a file of it has no name";
    ManifestFile file{.name = item["name"].get<std::string>()};
    if (!is_inside(file.name)) return quoted_name(file.name) + " is not a name of a file inside its folder";
    if (!names.insert(file.name).second) return "it has " + quoted_name(file.name) + " twice";
    int64_t size = 0, crc32 = 0;
    auto problem = take_number(item, "size", INT64_MAX, size);
    if (problem.empty()) problem = take_number(item, "crc32", UINT32_MAX, crc32);
    if (!problem.empty()) return quoted_name(file.name) + ": " + problem;
    file.size = static_cast<uint64_t>(size);
    file.crc32 = static_cast<uint32_t>(crc32);
    to.push_back(std::move(file));
  }
  return {};
}

std::string take_metadata(const ManifestJson& object, std::map<std::string, std::string>& to) {
  const auto found = object.find("metadata");
  if (found == object.end() || !found->is_object()) return "it has no object \"metadata\"";
  for (const auto& [key, value] : found->items()) {
    if (!value.is_string()) return "the value of " + quoted_name(key) + " in its metadata is not a text";
    to[key] = value.get<std::string>();
  }
  return {};
}

// Returns everything except the checksum, which comes last.
ManifestJson json_of(const Manifest& manifest) {
  ManifestJson files = ManifestJson::array();
  for (const ManifestFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"size", file.size}, {"crc32", file.crc32}});
  }
  ManifestJson object{{"format", "cohort checkpoint"},
                      {"version", kManifestVersion},
                      {"step", manifest.step},
                      {"saved_at", manifest.saved_at},
                      {"num_ranks", manifest.num_ranks}};
  if (manifest.metric && std::isfinite(*manifest.metric)) object["metric"] = *manifest.metric;
  object["metadata"] = manifest.metadata;
  object["files"] = std::move(files);
  return object;
}

// Names and texts that are not UTF-8 get a replacement character and are not refused.
std::string dump(const ManifestJson& object, int indent = -1) {
  return object.dump(indent, ' ', false, ManifestJson::error_handler_t::replace);
}

}  // namespace

uint64_t Manifest::num_bytes() const {
  uint64_t sum = 0;
  for (const ManifestFile& file : files) sum += file.size;
  return sum;
}

std::string format_manifest(const Manifest& manifest) {
  ManifestJson object = json_of(manifest);
  object["crc32"] = crc32(dump(object));
  return dump(object, 1) + "\n";
}

base::Result<Manifest> parse_manifest(std::string_view text) {
  if (base::json_depth(text) > kMaxDepth) return not_a_manifest("its lists are nested too deep");
  ManifestJson object = ManifestJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return not_a_manifest("it is not a JSON object");
  if (object.value("format", ManifestJson()) != "cohort checkpoint")
    return not_a_manifest("it has no \"format\": \"cohort checkpoint\"");
  if (object.value("version", ManifestJson()) != kManifestVersion) {
    return base::Error("it was written by a version of Cohort that is newer than this one")
        .with_hint("read it with the version that wrote it");
  }
  Manifest manifest;
  int64_t own_crc32 = 0;
  auto problem = take_number(object, "step", INT64_MAX, manifest.step);
  if (problem.empty()) problem = take_number(object, "saved_at", INT64_MAX, manifest.saved_at);
  if (problem.empty()) problem = take_number(object, "num_ranks", INT32_MAX, manifest.num_ranks);
  if (problem.empty()) problem = take_metadata(object, manifest.metadata);
  if (problem.empty()) problem = take_files(object, manifest.files);
  if (problem.empty()) problem = take_number(object, "crc32", UINT32_MAX, own_crc32);
  if (!problem.empty()) return not_a_manifest(problem);
  if (const auto metric = object.find("metric"); metric != object.end() && metric->is_number()) {
    manifest.metric = metric->get<double>();
  }
  object.erase("crc32");
  if (crc32(dump(object)) != static_cast<uint32_t>(own_crc32))
    return base::Error("the manifest does not match its checksum");
  return manifest;
}

}  // namespace cohort::files
