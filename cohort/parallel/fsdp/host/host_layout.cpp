#include "cohort/parallel/fsdp/host/host_layout.h"

#include <algorithm>

namespace cohort::fsdp {
namespace {

constexpr size_t kAlignment = 64;

Slice rows_of(int64_t rows, int rank, int world_size) {
  const auto chunk = (rows + world_size - 1) / world_size;
  const auto begin = std::min(rows, chunk * rank);
  return {begin, std::min(rows, begin + chunk) - begin};
}

}  // namespace

Slice slice_of(const std::vector<int64_t>& sizes, int rank, int world_size) {
  int64_t row = 1;
  for (size_t i = 1; i < sizes.size(); ++i) row *= sizes[i];
  const auto rows = rows_of(sizes.front(), rank, world_size);
  return {rows.begin * row, rows.count * row};
}

std::vector<int64_t> shard_sizes(const std::vector<int64_t>& sizes, int rank, int world_size) {
  auto result = sizes;
  result.front() = rows_of(sizes.front(), rank, world_size).count;
  return result;
}

Layout lay_out(const std::vector<size_t>& num_bytes) {
  Layout layout;
  for (const auto bytes : num_bytes) {
    layout.offsets.push_back(layout.num_bytes);
    layout.num_bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return layout;
}

std::vector<std::vector<size_t>> split_into_chunks(const std::vector<size_t>& num_bytes) {
  std::vector<std::vector<size_t>> chunks;
  size_t bytes = kChunkBytes;
  for (size_t i = num_bytes.size(); i-- > 0;) {
    if (bytes >= kChunkBytes) {
      chunks.emplace_back();
      bytes = 0;
    }
    chunks.back().push_back(i);
    bytes += num_bytes[i];
  }
  return chunks;
}

}  // namespace cohort::fsdp
