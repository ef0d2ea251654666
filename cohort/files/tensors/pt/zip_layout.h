/// ZipLayout: where each part of a zip file of stored records lies, known before anything is written, so that threads can write
/// records side by side. Like the files of torch.save to the byte: data at multiples of 64, padding in the extra part "FB", data
/// descriptors, 64-bit numbers where they are needed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cohort::files {

class ZipLayout {
 public:
  /// `name`: with the archive's folder, "model/data/0".
  /// Returns: the offset of its bytes in the file.
  uint64_t add(std::string name, uint64_t size);
  /// Of the record added as the index-th.
  void set_crc(size_t index, uint32_t crc) { records_[index].crc = crc; }
  uint32_t crc(size_t index) const { return records_[index].crc; }

  struct Piece {
    uint64_t offset;
    std::string bytes;
  };
  /// Everything but the records' bytes. All checksums are set.
  std::vector<Piece> pieces() const;
  /// Of the whole file.
  uint64_t file_size() const;

 private:
  struct Record {
    std::string name;
    uint64_t header_offset = 0;
    uint64_t offset = 0;
    uint64_t size = 0;
    uint32_t crc = 0;
  };
  std::string header(const Record& record) const;
  std::string descriptor(const Record& record) const;
  std::string directory() const;

  std::vector<Record> records_;
  uint64_t end_ = 0;
};

}  // namespace cohort::files
