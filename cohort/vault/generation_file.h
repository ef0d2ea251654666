/// GenerationFile: one state of one rank in a memory file.
///
///     header (a page) | description by the writer | what is this rank's own | its share of what all ranks have alike
///
/// A generation counts from commit() on. A process that dies before leaves a file that says so: commit() writes the last word
/// after all others. The header has a checksum over itself and the description, so whatever else may be in a file is not taken
/// for a generation.
///
/// Thread-safety: one writer; readers only of what is committed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"
#include "cohort/shm/memory/shared_memory.h"

namespace cohort::vault {

/// What a generation is, for those that look for one.
struct Generation {
  int64_t step = 0;
  int32_t world_size = 1;
  int32_t rank = 0;
  /// The first rank of its node, and how many the node had.
  int32_t first_rank = 0;
  int32_t local_world_size = 1;
  /// 1: another number of ranks can go on from it.
  int32_t suits_other_worlds = 0;
  int32_t reserved = 0;
  uint64_t num_meta_bytes = 0;
  uint64_t num_own_bytes = 0;
  /// Of all bytes that all ranks have alike, which ones are here.
  uint64_t shared_total = 0;
  uint64_t shared_begin = 0;
  uint64_t num_shared_bytes = 0;
  /// Of the layout of the bytes that all ranks have alike; equal on all of them.
  uint64_t shared_layout = 0;

  bool operator==(const Generation&) const = default;
};

/// Where the parts of a file are.
struct GenerationParts {
  uint64_t meta = 0;
  uint64_t own = 0;
  uint64_t shared = 0;
  uint64_t end = 0;
};
/// Nothing for numbers that no file can have.
std::optional<GenerationParts> parts_of(const Generation& generation);

/// The committed generation in `file`, whose bytes go to the end of the description at least; nothing where there is none. `size`
/// is the whole file's. `has_shared`: the share of all ranks' bytes must be in it. Pure.
std::optional<Generation> read_generation(std::span<const std::byte> file, uint64_t size, bool has_shared);
/// How many bytes read_generation needs, from the first page; 0: it is no generation's.
uint64_t bytes_to_read(std::span<const std::byte> first_page, uint64_t size);

/// 64 bits that change with every bit of `bytes` and their order; not against those who try.
uint64_t checksum_of(std::span<const std::byte> bytes);

inline constexpr uint64_t kHeaderBytes = 4096;

class GenerationFile {
 public:
  /// An empty one with room for `capacity` bytes. `fd`: for whoever keeps it.
  static base::Result<GenerationFile> create(uint64_t capacity, base::Fd* fd);
  static base::Result<GenerationFile> open(const base::Fd& fd, uint64_t size);

  uint64_t size() const { return memory_->size(); }
  /// Nothing if none is committed here. A copy at a partner has no shared bytes.
  std::optional<Generation> read(bool has_shared = true) const;

  /// The file holds no generation from now on. Requires that the parts fit.
  void begin(const Generation& generation, std::string_view meta);
  void commit();
  void invalidate();

  /// Of the generation that was begun or read.
  std::span<std::byte> meta(const Generation& generation) const;
  std::span<std::byte> own(const Generation& generation) const;
  std::span<std::byte> shared(const Generation& generation) const;
  std::span<std::byte> bytes() const { return {memory_->data(), memory_->size()}; }
  const shm::SharedMemoryPtr& memory() const { return memory_; }

 private:
  explicit GenerationFile(shm::SharedMemoryPtr memory) : memory_(std::move(memory)) {}
  shm::SharedMemoryPtr memory_;
};

}  // namespace cohort::vault
