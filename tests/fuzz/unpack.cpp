// Archives from a server: a first byte that says which kind ('g': .gz, others: .tar.gz), then the archive. However it is
// made, names are safe and sizes bounded.
#include "cohort/extras/files/sets/unpack.h"

#include "tests/fuzz/fuzz.h"

namespace cohort::files {
namespace {

constexpr UnpackLimits kLimits{.max_bytes = 1 << 20, .max_entries = 100};

class Checking final : public UnpackTarget {
 public:
  base::Result<void> add_folder(const std::string& name) override { return take(name); }
  base::Result<void> begin_file(const std::string& name) override { return take(name); }
  base::Result<void> write(std::string_view bytes) override {
    num_bytes_ += bytes.size();
    FUZZ_CHECK(num_bytes_ <= kLimits.max_bytes);
    return {};
  }

 private:
  base::Result<void> take(const std::string& name) {
    FUZZ_CHECK(++num_entries_ <= kLimits.max_entries);
    FUZZ_CHECK(!name.empty() && name[0] != '/' && ("/" + name + "/").find("/../") == std::string::npos);
    return {};
  }
  uint64_t num_bytes_ = 0;
  int num_entries_ = 0;
};

}  // namespace
}  // namespace cohort::files

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  if (size == 0) return 0;
  const auto archive = files::InputFile::view("archive", fuzz::text_of(data + 1, size - 1));
  files::Checking target;
  if (data[0] == 'g') {
    (void)files::unpack_gz(archive, "file", files::kLimits, target);
  } else {
    (void)files::unpack_tar_gz(archive, files::kLimits, target);
  }
  return 0;
}
