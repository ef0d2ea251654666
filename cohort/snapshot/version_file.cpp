#include "cohort/snapshot/version_file.h"

#include <atomic>
#include <cstring>

namespace cohort::snapshot {

using base::Result;

namespace {

constexpr uint64_t kFileMagic = 0x316E656774726863;  // "chrtgen1"
/// No rank has more bytes. The limit keeps sums of such numbers from overflowing.
constexpr uint64_t kMostBytes = uint64_t{1} << 48;
constexpr int32_t kMostRanks = 1 << 20;

/// Values of FileHeader::state.
constexpr uint64_t kUnfinished = 0;
constexpr uint64_t kCommitted = 0xC0111111;

struct FileHeader {
  uint64_t magic;
  std::atomic<uint64_t> state;
  uint64_t checksum;
  Version version;
};
static_assert(sizeof(FileHeader) <= kHeaderBytes && std::atomic<uint64_t>::is_always_lock_free);

uint64_t in_pages(uint64_t num_bytes) { return (num_bytes + kHeaderBytes - 1) / kHeaderBytes * kHeaderBytes; }

FileHeader* header_in(std::byte* file) { return reinterpret_cast<FileHeader*>(file); }

uint64_t checksum_of_header(const Version& version, std::span<const std::byte> meta) {
  const uint64_t own = checksum_of(std::as_bytes(std::span(&version, 1)));
  return own ^ (checksum_of(meta) * 0x9E3779B97F4A7C15);
}

struct HeaderLook {
  Version version;
  uint64_t checksum = 0;
  VersionParts parts;
};

/// Checks all but the checksum, which needs the description.
std::optional<HeaderLook> look_at(std::span<const std::byte> first_page, uint64_t size) {
  if (first_page.size() < sizeof(FileHeader)) return std::nullopt;
  uint64_t words[3];
  std::memcpy(words, first_page.data(), sizeof(words));
  if (words[0] != kFileMagic || words[1] != kCommitted) return std::nullopt;
  HeaderLook look{.checksum = words[2]};
  std::memcpy(static_cast<void*>(&look.version), first_page.data() + offsetof(FileHeader, version), sizeof(Version));
  const auto parts = parts_of(look.version);
  if (!parts || parts->shared > size) return std::nullopt;
  look.parts = *parts;
  return look;
}

}  // namespace

// Multiplies and folds, eight bytes at a time.
uint64_t checksum_of(std::span<const std::byte> bytes) {
  uint64_t sum = 0x243F6A8885A308D3 ^ bytes.size();
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof(word), bytes.size() - at));
    sum = (sum ^ word) * 0x9E3779B97F4A7C15;
    sum ^= sum >> 29;
  }
  return sum;
}

std::optional<VersionParts> parts_of(const Version& version) {
  const Version& g = version;
  if (g.num_meta_bytes > kMostBytes || g.num_own_bytes > kMostBytes || g.shared_total > kMostBytes) return std::nullopt;
  if (g.shared_begin > g.shared_total || g.num_shared_bytes > g.shared_total - g.shared_begin) return std::nullopt;
  if (g.world_size <= 0 || g.world_size > kMostRanks || g.rank < 0 || g.rank >= g.world_size) return std::nullopt;
  if (g.local_world_size <= 0 || g.local_world_size > g.world_size || g.first_rank < 0 || g.first_rank > g.rank ||
      g.rank - g.first_rank >= g.local_world_size || g.first_rank > g.world_size - g.local_world_size) {
    return std::nullopt;
  }
  VersionParts parts{.meta = kHeaderBytes};
  parts.own = parts.meta + in_pages(g.num_meta_bytes);
  parts.shared = parts.own + in_pages(g.num_own_bytes);
  parts.end = parts.shared + in_pages(g.num_shared_bytes);
  return parts;
}

uint64_t bytes_to_read(std::span<const std::byte> first_page, uint64_t size) {
  const auto look = look_at(first_page, size);
  return look ? look->parts.own : 0;
}

std::optional<Version> read_version(std::span<const std::byte> file, uint64_t size, bool has_shared) {
  const auto look = look_at(file, size);
  if (!look || look->parts.own > file.size() || (has_shared && look->parts.end > size)) return std::nullopt;
  const auto meta = file.subspan(look->parts.meta, look->version.num_meta_bytes);
  if (checksum_of_header(look->version, meta) != look->checksum) return std::nullopt;
  return look->version;
}

Result<VersionFile> VersionFile::create(uint64_t capacity, base::Fd* fd) {
  Result<shm::SharedMemoryPtr> memory = shm::SharedMemory::create(capacity, fd);
  if (!memory) return memory.error();
  (*memory)->keep_from_children();
  return VersionFile(std::move(*memory));
}

Result<VersionFile> VersionFile::open(const base::Fd& fd, uint64_t size) {
  Result<shm::SharedMemoryPtr> memory = shm::SharedMemory::open(fd, size);
  if (!memory) return memory.error();
  (*memory)->keep_from_children();
  return VersionFile(std::move(*memory));
}

std::optional<Version> VersionFile::read(bool has_shared) const {
  (void)header_in(memory_->data())->state.load(std::memory_order_acquire);
  return read_version(bytes(), size(), has_shared);
}

void VersionFile::begin(const Version& version, std::string_view meta) {
  invalidate();
  FileHeader* header = header_in(memory_->data());
  header->magic = kFileMagic;
  std::memcpy(static_cast<void*>(&header->version), &version, sizeof(version));
  std::memcpy(memory_->data() + kHeaderBytes, meta.data(), meta.size());
  header->checksum = checksum_of_header(version, std::as_bytes(std::span(meta)));
}

void VersionFile::commit() { header_in(memory_->data())->state.store(kCommitted, std::memory_order_release); }

// Makes sure that no later write is visible before this one. Uses an exchange, because later writes may pass a store. (A fence
// would work as well, but the thread sanitizer does not know fences.)
void VersionFile::invalidate() { header_in(memory_->data())->state.exchange(kUnfinished, std::memory_order_seq_cst); }

std::span<std::byte> VersionFile::meta(const Version& version) const {
  return bytes().subspan(kHeaderBytes, version.num_meta_bytes);
}

std::span<std::byte> VersionFile::own(const Version& version) const {
  return bytes().subspan(parts_of(version)->own, version.num_own_bytes);
}

std::span<std::byte> VersionFile::shared(const Version& version) const {
  return bytes().subspan(parts_of(version)->shared, version.num_shared_bytes);
}

}  // namespace cohort::snapshot
