#include "cohort/files/tensors/elements/crc32.h"

#include <libdeflate.h>
#include <zlib.h>

#include "cohort/files/tensors/elements/crc32_wide.h"

namespace cohort::files {
namespace {

constexpr size_t kWorthFolding = 4 * kFoldBlockBytes;
// The library inverts the register before and after, so this value makes it start with zeros.
constexpr uint32_t kZeroRegister = 0xFFFFFFFF;

}  // namespace

uint32_t crc32(std::string_view bytes, uint32_t before) {
  static const bool folds = can_fold_crc32();
  if (folds && bytes.size() >= kWorthFolding) {
    const size_t num_folded = bytes.size() / kFoldBlockBytes * kFoldBlockBytes;
    const auto folded = fold_crc32(bytes.substr(0, num_folded), before);
    before = libdeflate_crc32(kZeroRegister, folded.data(), folded.size());
    bytes.remove_prefix(num_folded);
  }
  return libdeflate_crc32(before, bytes.data(), bytes.size());
}

uint32_t join_crc32(uint32_t first, uint32_t second, uint64_t size_of_second) {
  return static_cast<uint32_t>(crc32_combine(first, second, static_cast<z_off_t>(size_of_second)));
}

}  // namespace cohort::files
