#include "cohort/checkpoint/file/fresh_storages.h"

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <cerrno>
#include <memory>

#include "cohort/base/text/text.h"

namespace cohort::checkpoint::detail {
namespace {

constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

struct MappedPart {
  void* begin;
  uint64_t num_bytes;
};

void unmap(void* context) {
  const std::unique_ptr<MappedPart> part(static_cast<MappedPart*>(context));
  munmap(part->begin, part->num_bytes);
}

uint64_t in_huge_pages(uint64_t num_bytes) {
  return (num_bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

char* map_memory(uint64_t num_bytes) {
  void* memory = mmap(nullptr, num_bytes + kHugePageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TORCH_CHECK(memory != MAP_FAILED, "[cohort] no memory for ", base::format_bytes(num_bytes),
              " of tensors: ", base::errno_text(errno));
  // Frees what is before the first huge page and after the last one.
  const uint64_t before = in_huge_pages(reinterpret_cast<uint64_t>(memory)) - reinterpret_cast<uint64_t>(memory);
  char* begin = static_cast<char*>(memory) + before;
  if (before > 0) munmap(memory, before);
  munmap(begin + num_bytes, kHugePageBytes - before);
  return begin;
}

// Gives the end of the storage small pages: with a huge page it could take almost one huge page more than it needs.
c10::Storage storage_at(char* begin, uint64_t num_bytes) {
  madvise(begin, num_bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
  auto part = std::make_unique<MappedPart>(MappedPart{begin, in_huge_pages(num_bytes)});
  return c10::Storage(c10::Storage::use_byte_size_t(), static_cast<int64_t>(num_bytes),
                      c10::DataPtr(begin, part.release(), &unmap, c10::Device(c10::kCPU)), c10::GetCPUAllocator(),
                      /*resizable=*/true);
}

}  // namespace

std::vector<c10::Storage> fresh_storages(const std::vector<uint64_t>& sizes) {
  const bool maps = c10::GetCPUAllocator() == c10::GetDefaultCPUAllocator();
  const auto is_mapped = [&](uint64_t num_bytes) { return maps && num_bytes >= kHugePageBytes; };
  uint64_t total = 0;
  for (const uint64_t size : sizes) total += is_mapped(size) ? in_huge_pages(size) : 0;
  char* next = total > 0 ? map_memory(total) : nullptr;
  std::vector<c10::Storage> storages;
  for (const uint64_t size : sizes) {
    if (is_mapped(size)) {
      storages.push_back(storage_at(next, size));
      next += in_huge_pages(size);
    } else {
      storages.push_back(at::empty({static_cast<int64_t>(size)}, at::TensorOptions().dtype(at::kByte)).storage());
    }
  }
  return storages;
}

}  // namespace cohort::checkpoint::detail
