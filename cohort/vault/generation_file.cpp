#include "cohort/vault/generation_file.h"

#include <atomic>
#include <cstring>

namespace cohort::vault {

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
  Generation generation;
};
static_assert(sizeof(FileHeader) <= kHeaderBytes && std::atomic<uint64_t>::is_always_lock_free);

uint64_t in_pages(uint64_t num_bytes) { return (num_bytes + kHeaderBytes - 1) / kHeaderBytes * kHeaderBytes; }

FileHeader* header_in(std::byte* file) { return reinterpret_cast<FileHeader*>(file); }

uint64_t checksum_of_header(const Generation& generation, std::span<const std::byte> meta) {
  const uint64_t own = checksum_of(std::as_bytes(std::span(&generation, 1)));
  return own ^ (checksum_of(meta) * 0x9E3779B97F4A7C15);
}

struct HeaderLook {
  Generation generation;
  uint64_t checksum = 0;
  GenerationParts parts;
};

/// Checks all but the checksum, which needs the description.
std::optional<HeaderLook> look_at(std::span<const std::byte> first_page, uint64_t size) {
  if (first_page.size() < sizeof(FileHeader)) return std::nullopt;
  uint64_t words[3];
  std::memcpy(words, first_page.data(), sizeof(words));
  if (words[0] != kFileMagic || words[1] != kCommitted) return std::nullopt;
  HeaderLook look{.checksum = words[2]};
  std::memcpy(static_cast<void*>(&look.generation), first_page.data() + offsetof(FileHeader, generation),
              sizeof(Generation));
  const auto parts = parts_of(look.generation);
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

std::optional<GenerationParts> parts_of(const Generation& generation) {
  const Generation& g = generation;
  if (g.num_meta_bytes > kMostBytes || g.num_own_bytes > kMostBytes || g.shared_total > kMostBytes) return std::nullopt;
  if (g.shared_begin > g.shared_total || g.num_shared_bytes > g.shared_total - g.shared_begin) return std::nullopt;
  if (g.world_size <= 0 || g.world_size > kMostRanks || g.rank < 0 || g.rank >= g.world_size) return std::nullopt;
  if (g.local_world_size <= 0 || g.local_world_size > g.world_size || g.first_rank < 0 || g.first_rank > g.rank ||
      g.rank - g.first_rank >= g.local_world_size || g.first_rank > g.world_size - g.local_world_size) {
    return std::nullopt;
  }
  GenerationParts parts{.meta = kHeaderBytes};
  parts.own = parts.meta + in_pages(g.num_meta_bytes);
  parts.shared = parts.own + in_pages(g.num_own_bytes);
  parts.end = parts.shared + in_pages(g.num_shared_bytes);
  return parts;
}

uint64_t bytes_to_read(std::span<const std::byte> first_page, uint64_t size) {
  const auto look = look_at(first_page, size);
  return look ? look->parts.own : 0;
}

std::optional<Generation> read_generation(std::span<const std::byte> file, uint64_t size, bool has_shared) {
  const auto look = look_at(file, size);
  if (!look || look->parts.own > file.size() || (has_shared && look->parts.end > size)) return std::nullopt;
  const auto meta = file.subspan(look->parts.meta, look->generation.num_meta_bytes);
  if (checksum_of_header(look->generation, meta) != look->checksum) return std::nullopt;
  return look->generation;
}

Result<GenerationFile> GenerationFile::create(uint64_t capacity, base::Fd* fd) {
  Result<shm::SharedMemoryPtr> memory = shm::SharedMemory::create(capacity, fd);
  if (!memory) return memory.error();
  (*memory)->keep_from_children();
  return GenerationFile(std::move(*memory));
}

Result<GenerationFile> GenerationFile::open(const base::Fd& fd, uint64_t size) {
  Result<shm::SharedMemoryPtr> memory = shm::SharedMemory::open(fd, size);
  if (!memory) return memory.error();
  (*memory)->keep_from_children();
  return GenerationFile(std::move(*memory));
}

std::optional<Generation> GenerationFile::read(bool has_shared) const {
  (void)header_in(memory_->data())->state.load(std::memory_order_acquire);
  return read_generation(bytes(), size(), has_shared);
}

void GenerationFile::begin(const Generation& generation, std::string_view meta) {
  invalidate();
  FileHeader* header = header_in(memory_->data());
  header->magic = kFileMagic;
  std::memcpy(static_cast<void*>(&header->generation), &generation, sizeof(generation));
  std::memcpy(memory_->data() + kHeaderBytes, meta.data(), meta.size());
  header->checksum = checksum_of_header(generation, std::as_bytes(std::span(meta)));
}

void GenerationFile::commit() { header_in(memory_->data())->state.store(kCommitted, std::memory_order_release); }

// Makes sure that no later write is visible before this one. Uses an exchange, because later writes may pass a store. (A fence
// would work as well, but the thread sanitizer does not know fences.)
void GenerationFile::invalidate() {
  header_in(memory_->data())->state.exchange(kUnfinished, std::memory_order_seq_cst);
}

std::span<std::byte> GenerationFile::meta(const Generation& generation) const {
  return bytes().subspan(kHeaderBytes, generation.num_meta_bytes);
}

std::span<std::byte> GenerationFile::own(const Generation& generation) const {
  return bytes().subspan(parts_of(generation)->own, generation.num_own_bytes);
}

std::span<std::byte> GenerationFile::shared(const Generation& generation) const {
  return bytes().subspan(parts_of(generation)->shared, generation.num_shared_bytes);
}

}  // namespace cohort::vault
