/// The records of a zip file and where their bytes lie, so that whoever reads a file in parallel or maps it finds them. Records
/// that are to be read must be stored, not compressed, as PyTorch writes tensors.
///
/// Nothing in the file is believed: sizes and places are inside the file, records do not overlap, no name comes twice or leads
/// out of the archive, and what a record says of itself agrees with the directory.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/files/input/random_access_file.h"

namespace cohort::files {

struct ZipRecord {
  std::string name;
  /// Of the record's own header, and of its bytes.
  uint64_t header_offset = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  uint32_t crc = 0;
  /// In the file, where the record is compressed: then it cannot be read.
  uint64_t packed_size = 0;
  bool is_compressed = false;
};

struct ZipDirectory {
  /// In the order of the directory.
  std::vector<ZipRecord> records;
  std::unordered_map<std::string, size_t> places;

  /// Null if there is no such record.
  const ZipRecord* find(const std::string& name) const {
    const auto place = places.find(name);
    return place == places.end() ? nullptr : &records[place->second];
  }
};

/// Errors name the file and the byte: `"x.pt", at byte 120: expected the end of a zip file's directory, but found ...`.
base::Result<ZipDirectory> read_zip_directory(const RandomAccessFile& file);

/// An error for a compressed record.
base::Result<void> check_stored(const RandomAccessFile& file, const ZipRecord& record);

/// The bytes of a record, compared with its checksum. `limit`: an error for more bytes.
base::Result<std::string> read_zip_record(const RandomAccessFile& file, const ZipRecord& record, uint64_t limit);

}  // namespace cohort::files
