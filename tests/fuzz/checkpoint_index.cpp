// The index of a sharded checkpoint. A first byte of 1: the checksum of our part is made right, so that what is behind it is
// reached.
#include "cohort/files/tensors/plan/checkpoint_index.h"

#include <nlohmann/json.hpp>

#include "cohort/base/text/json_text.h"
#include "cohort/files/tensors/elements/crc32.h"
#include "cohort/files/tensors/elements/plain_json.h"
#include "tests/fuzz/fuzz.h"

namespace cohort::files {
namespace {

std::string with_checksum(std::string_view text) {
  if (base::json_depth(text) > 1000) return std::string(text);
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("metadata") || !json["metadata"].is_object() ||
      !json["metadata"].contains("cohort") || !json["metadata"]["cohort"].is_object() || !json.contains("weight_map")) {
    return std::string(text);
  }
  Json& own = json["metadata"]["cohort"];
  own.erase("crc32");
  try {
    own["crc32"] = crc32(own.dump() + json["weight_map"].dump());
    return json.dump();
  } catch (const Json::exception&) {
    return std::string(text);
  }
}

void check(const CheckpointIndex& index) {
  for (const IndexedFile& file : index.files) FUZZ_CHECK(file_name_problem(file.name).empty());
  for (const auto& [name, file] : index.file_of) FUZZ_CHECK(file < index.files.size());
  for (const auto& [name, value] : index.values) {
    const auto plain = plain_value(value);
    if (!plain) continue;
    const auto json = plain_json(*plain);
    FUZZ_CHECK(json.ok() && *json == value);
  }
  const auto text = format_checkpoint_index(index);
  FUZZ_CHECK(text.ok());
  const auto again = parse_checkpoint_index(*text);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(again->file_of.size() == index.file_of.size() && again->values == index.values);
  FUZZ_CHECK(again->is_ours == index.is_ours && again->pieces.size() == index.pieces.size());
}

}  // namespace
}  // namespace cohort::files

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  if (size == 0) return 0;
  const auto text = fuzz::text_of(data + 1, size - 1);
  const auto index = files::parse_checkpoint_index(data[0] == 1 ? files::with_checksum(text) : std::string(text));
  if (!index) FUZZ_CHECK(index.error().message().size() < 2000);
  if (index) files::check(*index);
  return 0;
}
