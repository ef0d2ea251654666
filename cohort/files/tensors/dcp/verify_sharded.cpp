#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cohort/files/tensors/dcp/stored_checkpoint.h"
#include "cohort/files/tensors/elements/crc32.h"
#include "cohort/files/tensors/elements/shown_text.h"
#include "cohort/files/tensors/safetensors/safetensors_file.h"

namespace cohort::files {
namespace {

using base::Error;
using base::Result;

constexpr int64_t kVerifyBytes = int64_t{16} << 20;

// Reads the piece in slices and returns its checksum.
Result<uint32_t> read_checksum(CheckpointReader& reader, const std::string& name, const StoredTensor& tensor,
                               const Region& region, VerifyReport& report) {
  const int64_t size = info_of(tensor.dtype).size;
  uint32_t crc = 0;
  std::string buffer;
  Result<void> done = for_each_slice(region, kVerifyBytes / size, [&](const Region& slice) -> Result<void> {
    buffer.resize(static_cast<size_t>(num_elements(slice) * size));
    report.num_bytes += buffer.size();
    if (Result<void> read = reader.read(name, slice, buffer.data(), false); !read) return read;
    crc = crc32(buffer, crc);
    return {};
  });
  return done ? Result<uint32_t>(crc) : Result<uint32_t>(done.error());
}

Result<void> verify_tensor(CheckpointReader& reader, const std::string& name, const StoredTensor& tensor,
                           VerifyReport& report) {
  if (tensor.pieces.empty()) {
    Result<uint32_t> read = read_checksum(reader, name, tensor, whole_region(tensor.shape), report);
    return read ? Result<void>() : Result<void>(read.error());
  }
  std::vector<Region> regions;
  for (const CheckedPiece& piece : tensor.pieces) regions.push_back(piece.region);
  if (const auto problem = partition_problem(tensor.shape, regions)) {
    return Error("tensor " + quoted_name(name) + ": its checksums do not cover it exactly: " + *problem);
  }
  for (const CheckedPiece& piece : tensor.pieces) {
    const uint64_t before = report.num_bytes;
    Result<uint32_t> checksum = read_checksum(reader, name, tensor, piece.region, report);
    if (!checksum) return checksum.error();
    if (*checksum != piece.crc32) return damaged_piece(name, piece);
    report.num_checked_bytes += report.num_bytes - before;
  }
  return {};
}

Result<void> verify_header(const std::string& path, const IndexedFile& indexed) {
  Result<SafetensorsFile> file = open_safetensors(path);
  if (!file) return Error("cannot read \"" + path + "\"").caused_by(file.error());
  Result<std::string> prefix = file->file.read(0, file->data_begin, "the header");
  if (!prefix) return prefix.error();
  if (crc32(*prefix) == indexed.header_crc32) return {};
  return Error("the header of \"" + path + "\" does not match its checksum: the checkpoint is damaged");
}

}  // namespace

Result<VerifyReport> verify_sharded(const std::string& path) {
  Result<StoredCheckpoint> checkpoint = open_stored_checkpoint(path);
  if (!checkpoint) return checkpoint.error();
  for (size_t i = 0; i < checkpoint->indexed.size(); ++i) {
    Result<void> header = verify_header(checkpoint->files[i], checkpoint->indexed[i]);
    if (!header) return header.error();
  }
  VerifyReport report{.num_tensors = checkpoint->tensors.size(), .num_values = checkpoint->values.size()};
  CheckpointReader reader(*checkpoint);
  for (const auto& [name, tensor] : checkpoint->tensors) {
    Result<void> verified = verify_tensor(reader, name, tensor, report);
    if (!verified) return verified.error();
  }
  return report;
}

}  // namespace cohort::files
