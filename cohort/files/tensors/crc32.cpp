#include "cohort/files/tensors/crc32.h"

#include <libdeflate.h>
#include <zlib.h>

namespace cohort::files {

uint32_t crc32(std::string_view bytes, uint32_t before) { return libdeflate_crc32(before, bytes.data(), bytes.size()); }

uint32_t join_crc32(uint32_t first, uint32_t second, uint64_t size_of_second) {
  return static_cast<uint32_t>(crc32_combine(first, second, static_cast<z_off_t>(size_of_second)));
}

}  // namespace cohort::files
