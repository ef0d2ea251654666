#include "cohort/files/tensors/pt/strided_reader.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace cohort::files {
namespace {

using base::Result;

// Elements that are adjacent in the storage.
struct Run {
  int64_t first;
  int64_t count;
};

constexpr int64_t kBatch = 1 << 16;
constexpr int64_t kMaxExtentBytes = 16 << 20;

int64_t element_at(const PtTensor& tensor, int64_t index) {
  int64_t place = tensor.offset;
  for (size_t dim = tensor.shape.size(); dim-- > 0;) {
    place += index % tensor.shape[dim] * tensor.strides[dim];
    index /= tensor.shape[dim];
  }
  return place;
}

std::vector<Run> runs_of(const PtTensor& tensor, int64_t begin, int64_t end) {
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  const bool is_dense = tensor.shape.empty() || tensor.strides.back() == 1 || row == 1;
  std::vector<Run> runs;
  for (int64_t index = begin; index < end;) {
    const int64_t count = is_dense ? std::min(end - index, row - index % row) : 1;
    const int64_t place = element_at(tensor, index);
    if (!runs.empty() && runs.back().first + runs.back().count == place) {
      runs.back().count += count;
    } else {
      runs.push_back({place, count});
    }
    index += count;
  }
  return runs;
}

// Reads complete elements of one batch, with one read if they are close together.
Result<void> read_batch(const RandomAccessFile& file, uint64_t storage_offset, int64_t size,
                        const std::vector<Run>& runs, std::span<char> to) {
  int64_t begin = INT64_MAX;
  int64_t end = 0;
  for (const Run& run : runs) {
    begin = std::min(begin, run.first);
    end = std::max(end, run.first + run.count);
  }
  const bool is_close = runs.size() > 1 && (end - begin) <= kMaxExtentBytes / size;
  std::string extent;
  if (is_close) {
    auto bytes = file.read(storage_offset + static_cast<uint64_t>(begin * size),
                           static_cast<uint64_t>((end - begin) * size), "a tensor");
    if (!bytes) return bytes.error();
    extent = std::move(*bytes);
  }
  for (const Run& run : runs) {
    const auto part = to.first(static_cast<size_t>(run.count * size));
    if (is_close) {
      std::memcpy(part.data(), extent.data() + (run.first - begin) * size, part.size());
    } else if (auto done = file.read(storage_offset + static_cast<uint64_t>(run.first * size), part, "a tensor");
               !done) {
      return done;
    }
    to = to.subspan(part.size());
  }
  return {};
}

bool is_row_major(const PtTensor& tensor) {
  int64_t expected = 1;
  for (size_t dim = tensor.shape.size(); dim-- > 0;) {
    if (tensor.shape[dim] != 1 && tensor.strides[dim] != expected) return false;
    expected *= tensor.shape[dim];
  }
  return true;
}

}  // namespace

Result<void> read_strided(const RandomAccessFile& file, uint64_t storage_offset, const PtTensor& tensor,
                          uint64_t first_byte, std::span<char> to) {
  if (to.empty()) return {};
  const int64_t size = info_of(tensor.dtype).size;
  if (is_row_major(tensor)) {
    return file.read(storage_offset + static_cast<uint64_t>(tensor.offset * size) + first_byte, to, "a tensor");
  }
  auto index = static_cast<int64_t>(first_byte) / size;
  auto skip = static_cast<size_t>(static_cast<int64_t>(first_byte) % size);
  std::string batch;
  while (!to.empty()) {
    const auto wanted =
        static_cast<int64_t>((skip + to.size() + static_cast<size_t>(size) - 1) / static_cast<size_t>(size));
    const int64_t count = std::min(wanted, kBatch);
    batch.resize(static_cast<size_t>(count * size));
    auto done = read_batch(file, storage_offset, size, runs_of(tensor, index, index + count), batch);
    if (!done) return done;
    const size_t part = std::min(to.size(), batch.size() - skip);
    std::memcpy(to.data(), batch.data() + skip, part);
    to = to.subspan(part);
    index += count;
    skip = 0;
  }
  return {};
}

}  // namespace cohort::files
