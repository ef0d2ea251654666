// Manifests of checkpoints.
#include "cohort/files/checkpoints/manifest.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  const auto manifest = files::parse_manifest(fuzz::text_of(data, size));
  if (!manifest) {
    FUZZ_CHECK(manifest.error().message().size() < 2000);
    return 0;
  }
  for (const auto& file : manifest->files)
    FUZZ_CHECK(!file.name.empty() && file.name[0] != '/' && !file.name.starts_with("../"));
  const auto again = files::parse_manifest(files::format_manifest(*manifest));
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(*again == *manifest);
  return 0;
}
