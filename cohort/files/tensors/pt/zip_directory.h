/// The records of a zip file and the places of their bytes, for reading a file in parallel or mapping it. Records to be read must
/// be stored, not compressed, as PyTorch writes tensors.
///
/// Everything in the file is checked: sizes and places are inside the file, records do not overlap, no name occurs twice or leads
/// out of the archive, and each record's header agrees with the directory.
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
  /// The places of the record's header and of its bytes.
  uint64_t header_offset = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  uint32_t crc = 0;
  /// The size in the file if the record is compressed; it then cannot be read.
  uint64_t packed_size = 0;
  bool is_compressed = false;
};

struct ZipDirectory {
  /// The records in the order of the directory.
  std::vector<ZipRecord> records;
  std::unordered_map<std::string, size_t> places;

  /// Returns null if there is no such record.
  const ZipRecord* find(const std::string& name) const {
    const auto place = places.find(name);
    return place == places.end() ? nullptr : &records[place->second];
  }
};

/// Reads the directory. Errors name the file and the byte: `"x.pt", at byte 120: expected the end of a zip file's directory, but
/// found ...`.
base::Result<ZipDirectory> read_zip_directory(const RandomAccessFile& file);

/// Returns an error for a compressed record.
base::Result<void> check_stored(const RandomAccessFile& file, const ZipRecord& record);

/// Reads a record and compares it with its checksum. Returns an error if it has more than `limit` bytes.
base::Result<std::string> read_zip_record(const RandomAccessFile& file, const ZipRecord& record, uint64_t limit);

}  // namespace cohort::files
