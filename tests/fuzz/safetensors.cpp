// Headers of safetensors files: 8 bytes that say how much data the file has, then JSON.
#include <cstring>

#include "cohort/files/tensors/safetensors/safetensors_header.h"
#include "tests/fuzz/fuzz.h"

namespace cohort::files {
namespace {

void expect_equal(const SafetensorsHeader& a, const SafetensorsHeader& b) {
  FUZZ_CHECK(a.metadata == b.metadata);
  FUZZ_CHECK(a.entries.size() == b.entries.size());
  for (size_t i = 0; i < a.entries.size(); ++i) {
    FUZZ_CHECK(a.entries[i].name == b.entries[i].name);
    FUZZ_CHECK(a.entries[i].dtype == b.entries[i].dtype);
    FUZZ_CHECK(a.entries[i].shape == b.entries[i].shape);
    FUZZ_CHECK(a.entries[i].begin == b.entries[i].begin && a.entries[i].end == b.entries[i].end);
  }
}

void check(const SafetensorsHeader& header, uint64_t num_data_bytes) {
  uint64_t sum = 0;
  for (const auto& entry : header.entries) {
    FUZZ_CHECK(entry.begin <= entry.end && entry.end <= num_data_bytes);
    auto size = static_cast<uint64_t>(info_of(entry.dtype).size);
    for (const auto length : entry.shape) size *= static_cast<uint64_t>(length);
    FUZZ_CHECK(size == entry.end - entry.begin);
    sum += size;
  }
  FUZZ_CHECK(sum == num_data_bytes);
  const auto text = format_safetensors_header(header);
  FUZZ_CHECK(text.ok());
  const auto again = parse_safetensors_header(*text, num_data_bytes);
  FUZZ_CHECK(again.ok());
  expect_equal(header, *again);
}

}  // namespace
}  // namespace cohort::files

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  uint64_t num_data_bytes = 0;
  if (size < sizeof num_data_bytes) return 0;
  std::memcpy(&num_data_bytes, data, sizeof num_data_bytes);
  const auto text = fuzz::text_of(data + sizeof num_data_bytes, size - sizeof num_data_bytes);
  const auto header = files::parse_safetensors_header(text, num_data_bytes);
  // Many places show an error: it stays a few lines, whatever the file holds.
  if (!header) FUZZ_CHECK(header.error().message().size() < 2000);
  if (header) files::check(*header, num_data_bytes);
  return 0;
}
