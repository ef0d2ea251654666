/// VersionFile: one version of one rank's state in a memory file.
///
///     header (a page) | description by the writer | this rank's own bytes | its part of the bytes that are replicated on all
///     ranks
///
/// A version counts from commit() on. If a process dies before, the file says that it is unfinished: commit() writes the last
/// word after all others. The header has a checksum of itself and the description, so other content is not mistaken for a
/// version.
///
/// Thread-safety: one writer; readers may only read committed versions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"
#include "cohort/shm/memory/shared_memory.h"

namespace cohort::snapshot {

/// A version's description, for ranks that search for one.
struct Version {
  int64_t step = 0;
  int32_t world_size = 1;
  int32_t rank = 0;
  /// The first rank of its node, and the number of ranks on that node.
  int32_t first_rank = 0;
  int32_t local_world_size = 1;
  /// 1 if a run with another number of ranks can go on from it.
  int32_t suits_other_worlds = 0;
  int32_t reserved = 0;
  uint64_t num_meta_bytes = 0;
  uint64_t num_own_bytes = 0;
  /// The number of replicated bytes, and which of them are in this file.
  uint64_t shared_total = 0;
  uint64_t shared_begin = 0;
  uint64_t num_shared_bytes = 0;
  /// A checksum of the layout of the replicated bytes; equal on all ranks.
  uint64_t shared_layout = 0;

  bool operator==(const Version&) const = default;
};

/// The offsets of the parts of a file.
struct VersionParts {
  uint64_t meta = 0;
  uint64_t own = 0;
  uint64_t shared = 0;
  uint64_t end = 0;
};
/// Returns nothing for numbers that no file can have.
std::optional<VersionParts> parts_of(const Version& version);

/// Returns the committed version in `file`, whose bytes must reach to the end of the description; nullopt without one.
/// `size` is the size of the complete file. `has_shared` says whether its part of the replicated bytes must be in it. Pure.
std::optional<Version> read_version(std::span<const std::byte> file, uint64_t size, bool has_shared);
/// Returns how many bytes read_version needs, given the first page. 0 means that the file has no version.
uint64_t bytes_to_read(std::span<const std::byte> first_page, uint64_t size);

/// Returns a checksum of 64 bits, which changes with every bit of `bytes` and their order. Not secure against attackers.
uint64_t checksum_of(std::span<const std::byte> bytes);

inline constexpr uint64_t kHeaderBytes = 4096;

class VersionFile {
 public:
  /// Creates an empty file with space for `capacity` bytes. `fd` receives a descriptor for the process that keeps the file.
  static base::Result<VersionFile> create(uint64_t capacity, base::Fd* fd);
  static base::Result<VersionFile> open(const base::Fd& fd, uint64_t size);

  uint64_t size() const { return memory_->size(); }
  /// Returns nothing if no version is committed. A copy on a partner node has no replicated bytes.
  std::optional<Version> read(bool has_shared = true) const;

  /// Marks the file as unfinished. Requires that the parts fit.
  void begin(const Version& version, std::string_view meta);
  void commit();
  void invalidate();

  /// The parts of the version that was begun or read.
  std::span<std::byte> meta(const Version& version) const;
  std::span<std::byte> own(const Version& version) const;
  std::span<std::byte> shared(const Version& version) const;
  std::span<std::byte> bytes() const { return {memory_->data(), memory_->size()}; }
  const shm::SharedMemoryPtr& memory() const { return memory_; }

 private:
  explicit VersionFile(shm::SharedMemoryPtr memory) : memory_(std::move(memory)) {}
  shm::SharedMemoryPtr memory_;
};

}  // namespace cohort::snapshot
