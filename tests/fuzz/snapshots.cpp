// What ranks read after a restart: memory files ('f', then the file's first bytes) and other nodes' lists (anything else).
#include <span>
#include <string>

#include "cohort/snapshot/choice.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace cohort;

void read_file(std::span<const std::byte> bytes) {
  for (const bool has_shared : {true, false}) {
    const auto version = snapshot::read_version(bytes, bytes.size(), has_shared);
    if (!version) continue;
    const auto parts = snapshot::parts_of(*version);
    FUZZ_CHECK(parts && parts->own <= bytes.size() && parts->shared <= bytes.size());
    FUZZ_CHECK(!has_shared || parts->end <= bytes.size());
    FUZZ_CHECK(snapshot::bytes_to_read(bytes, bytes.size()) == parts->own);
  }
}

void read_list(const std::string& text) {
  const auto held = snapshot::parse_list(text, 1);
  if (!held) {
    FUZZ_CHECK(held.error().describe().size() < text.size() + 100);
    return;
  }
  FUZZ_CHECK(snapshot::parse_list(snapshot::list_in_text(*held), 1)->size() == held->size());
  std::string why_not;
  const auto choice = snapshot::choose(*held, 2, &why_not);
  FUZZ_CHECK(why_not.size() < 300);
  if (!choice || choice->world_size != 2) return;
  for (const int rank : {0, 1}) FUZZ_CHECK(snapshot::find_own(*held, *choice, rank, 0) != nullptr);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0 && data[0] == 'f') {
    read_file(std::as_bytes(std::span(data + 1, size - 1)));
  } else {
    read_list(std::string(fuzz::text_of(data, size)));
  }
  return 0;
}
