/// Memory for what a file holds, in one piece from the kernel: large parts lie in huge pages, which come 512 times as fast as
/// ordinary ones. Each storage gives its own part back.
#pragma once

#include <c10/core/Storage.h>

#include <cstdint>
#include <vector>

#include "cohort/export.h"

namespace cohort::checkpoint::detail {

/// A storage on the CPU for each number of bytes; what is in them is undefined. Where another allocator than LibTorch's default
/// one was set for the CPU, all come from that. Throws c10::Error when there is no memory.
COHORT_TEST_API std::vector<c10::Storage> fresh_storages(const std::vector<uint64_t>& sizes);

}  // namespace cohort::checkpoint::detail
