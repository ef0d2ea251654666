/// Memory for the tensors of a file, in one piece from the kernel: large tensors use huge pages, which the kernel provides 512
/// times as fast as ordinary pages. Each storage frees its own memory.
#pragma once

#include <c10/core/Storage.h>

#include <cstdint>
#include <vector>

#include "cohort/export.h"

namespace cohort::checkpoint::detail {

/// Returns a CPU storage for each number of bytes, with undefined content. If the CPU's allocator is not LibTorch's default, all
/// come from that allocator. Throws c10::Error if there is not enough memory.
COHORT_TEST_API std::vector<c10::Storage> fresh_storages(const std::vector<uint64_t>& sizes);

}  // namespace cohort::checkpoint::detail
