/// ZipLayout: the place of each part of a zip file of stored records. It is known before anything is written, so that threads can
/// write records in parallel. Equals the files of torch.save byte for byte: data at multiples of 64, padding in the extra part
/// "FB", data descriptors, 64-bit numbers if they are needed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cohort::files {

class ZipLayout {
 public:
  /// Adds a record. `name` includes the archive's folder, as in "model/data/0". Returns the offset of its bytes in the file.
  uint64_t add(std::string name, uint64_t size);
  /// Sets the checksum of the record that was added as the index-th.
  void set_crc(size_t index, uint32_t crc) { records_[index].crc = crc; }
  uint32_t crc(size_t index) const { return records_[index].crc; }

  struct Piece {
    uint64_t offset;
    std::string bytes;
  };
  /// Returns everything except the records' bytes. All checksums must be set.
  std::vector<Piece> pieces() const;
  /// The size of the complete file.
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
