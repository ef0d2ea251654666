#include <algorithm>
#include <span>
#include <utility>

#include "cohort/files/tensors/dcp/pt_checkpoint.h"
#include "cohort/files/tensors/dcp/stored_checkpoint.h"
#include "cohort/files/tensors/elements/crc32.h"
#include "cohort/files/tensors/elements/shown_text.h"
#include "cohort/files/tensors/pt/strided_reader.h"

namespace cohort::files {
namespace {

using base::Error;
using base::Result;

// Computing a checksum right after reading costs little, because the bytes are in the cache.
constexpr size_t kCheckedBlockBytes = size_t{256} << 10;

// Returns the checksum of the piece's elements in `data`, which holds `region`.
Result<uint32_t> checksum_of(const Region& piece, const Region& region, const char* data, int64_t element_size) {
  uint32_t crc = 0;
  Result<void> done = for_each_common_run(piece, region, [&](const ElementRun& run) -> Result<void> {
    crc = crc32({data + run.to * element_size, static_cast<size_t>(run.count * element_size)}, crc);
    return {};
  });
  return done ? Result<uint32_t>(crc) : Result<uint32_t>(done.error());
}

}  // namespace

Error damaged_piece(const std::string& name, const CheckedPiece& piece) {
  return Error("tensor " + quoted_name(name) + ": the bytes of " + region_text(piece.region) +
               " do not match their checksum: the checkpoint is damaged");
}

Result<const RandomAccessFile*> CheckpointReader::file(size_t index) {
  const auto found = open_files_.find(index);
  if (found != open_files_.end()) return &found->second;
  Result<RandomAccessFile> file = RandomAccessFile::open(checkpoint_.files[index]);
  if (!file) return file.error();
  return &open_files_.emplace(index, std::move(*file)).first->second;
}

Result<StoredChunk> CheckpointReader::resolve(const StoredTensor& tensor, const StoredChunk& chunk,
                                              const RandomAccessFile& file) {
  if (chunk.record_bytes == 0) return chunk;
  const auto found = resolved_.find({chunk.file, chunk.offset});
  if (found != resolved_.end()) return found->second;
  if (chunk.offset > file.size() || chunk.record_bytes > file.size() - chunk.offset) {
    return Error("\"" + file.path() + "\" has " + std::to_string(file.size()) +
                 " bytes, but a record of it is said to end at byte " + std::to_string(chunk.offset) + " + " +
                 std::to_string(chunk.record_bytes) + ": the checkpoint is damaged");
  }
  Result<PtFile> record = read_pt_file(file.slice(chunk.offset, chunk.record_bytes));
  if (!record) return record.error();
  const PtTensor* view = record->tensor(record->root);
  if (!view) return Error("a record of \"" + file.path() + "\" is not a tensor");
  if (view->dtype != tensor.dtype || view->shape != shape_of(chunk.region)) {
    return Error("a record of \"" + file.path() +
                 "\" is another tensor than the metadata say: the checkpoint is damaged");
  }
  Result<StoredChunk> place = chunk_of(*record, *view, chunk.region, chunk.file, chunk.offset);
  if (place) resolved_.emplace(std::pair(chunk.file, chunk.offset), *place);
  return place;
}

Result<void> CheckpointReader::read_chunk(const StoredTensor& tensor, const StoredChunk& chunk, const Region& region,
                                          char* to, uint32_t* crc) {
  if (!overlaps(chunk.region, region)) return {};
  Result<const RandomAccessFile*> from = file(chunk.file);
  if (!from) return from.error();
  Result<StoredChunk> place = resolve(tensor, chunk, **from);
  if (!place) return place.error();
  const int64_t size = info_of(tensor.dtype).size;
  return for_each_common_run(chunk.region, region, [&](const ElementRun& run) -> Result<void> {
    std::span<char> target(to + run.to * size, static_cast<size_t>(run.count * size));
    auto first = static_cast<uint64_t>(run.from * size);
    bytes_read_ += target.size();
    while (!target.empty()) {
      const auto block = target.first(std::min(target.size(), crc ? kCheckedBlockBytes : target.size()));
      Result<void> done = place->view ? read_strided(**from, place->offset, *place->view, first, block)
                                      : (*from)->read(place->offset + first, block, "data");
      if (!done) return done;
      if (crc) *crc = crc32({block.data(), block.size()}, *crc);
      target = target.subspan(block.size());
      first += block.size();
    }
    return {};
  });
}

Result<void> CheckpointReader::read(const std::string& name, const Region& region, char* to, bool verify) {
  const auto found = checkpoint_.tensors.find(name);
  if (found == checkpoint_.tensors.end()) return Error("the checkpoint has no tensor " + quoted_name(name));
  const StoredTensor& tensor = found->second;
  // The usual case, a piece that this rank wrote: its checksum is computed while the bytes are in the cache.
  const bool is_piece = verify && tensor.chunks.size() == 1;
  const auto own = std::find_if(tensor.pieces.begin(), tensor.pieces.end(),
                                [&](const CheckedPiece& piece) { return is_piece && piece.region == region; });
  uint32_t crc = 0;
  for (const StoredChunk& chunk : tensor.chunks) {
    Result<void> done = read_chunk(tensor, chunk, region, to, own == tensor.pieces.end() ? nullptr : &crc);
    if (!done) return Error("tensor " + quoted_name(name)).caused_by(done.error());
  }
  if (!verify) return {};
  if (own != tensor.pieces.end()) return crc == own->crc32 ? Result<void>() : damaged_piece(name, *own);
  for (const CheckedPiece& piece : tensor.pieces) {
    if (!contains(region, piece.region)) continue;
    Result<uint32_t> checksum = checksum_of(piece.region, region, to, info_of(tensor.dtype).size);
    if (!checksum) return checksum.error();
    if (*checksum != piece.crc32) return damaged_piece(name, piece);
  }
  return {};
}

}  // namespace cohort::files
