#include "cohort/files/tensors/sources/pt_checksums.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cohort/files/tensors/elements/crc32.h"
#include "cohort/files/tensors/pt/pt_file.h"
#include "cohort/files/tensors/sources/tensor_pieces.h"

namespace cohort::files {

base::Result<uint64_t> check_pt_checksums(const std::string& path) {
  const auto file = RandomAccessFile::open(path);
  if (!file) return file.error();
  const auto contents = read_pt_file(*file);
  if (!contents) return contents.error();
  uint64_t num_checked = 0;
  std::vector<char> piece;
  for (const PtStorage& storage : contents->storages) {
    uint32_t sum = 0;
    for (uint64_t at = 0; at < storage.num_bytes; at += piece.size()) {
      piece.resize(std::min(storage.num_bytes - at, kTensorPieceBytes));
      if (auto read = file->read(storage.offset + at, piece, "a storage"); !read) return read.error();
      sum = crc32({piece.data(), piece.size()}, sum);
    }
    if (!storage.crc) continue;
    if (sum != *storage.crc) {
      return base::Error(fmt::format("\"{}\": storage {} is damaged: its checksum is {:08x}, but the file says {:08x}",
                                     path, storage.key, sum, *storage.crc));
    }
    num_checked += storage.num_bytes;
  }
  return num_checked;
}

}  // namespace cohort::files
