#include "benchmarks/collectives/collective_pattern.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace cohort::bench {
namespace {

// A prime, so that no two parts of a tensor begin with the same values.
constexpr size_t kPeriod = 1009;

float value_at(int rank, size_t index) {
  return static_cast<float>((index % kPeriod * 7 + static_cast<size_t>(rank) * 5) % 13);
}

float sum_at(int num_ranks, size_t index) {
  float sum = 0;
  for (int rank = 0; rank < num_ranks; ++rank) sum += value_at(rank, index);
  return sum;
}

void store(DType dtype, float value, std::byte* place) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const auto upper = static_cast<uint16_t>(bits >> 16);
  if (dtype == DType::kFloat32) {
    std::memcpy(place, &bits, sizeof bits);
  } else {
    std::memcpy(place, &upper, sizeof upper);
  }
}

// A part of a tensor: `count` elements at `offset` that equal those from `first` on of one rank's input, or of the sum of all
// inputs.
struct Part {
  size_t offset = 0;
  size_t count = 0;
  bool is_sum = false;
  int source = 0;
  size_t first = 0;
};

std::vector<std::byte> one_period(const CollectiveCase& what, const Part& part) {
  const size_t size = size_of(what.dtype);
  std::vector<std::byte> bytes(kPeriod * size);
  for (size_t i = 0; i < kPeriod; ++i) {
    const size_t index = part.first + i;
    store(what.dtype, part.is_sum ? sum_at(what.num_ranks, index) : value_at(part.source, index), &bytes[i * size]);
  }
  return bytes;
}

std::vector<Part> expected_parts(const CollectiveCase& what, int rank) {
  const size_t count = what.num_elements();
  const size_t part = count / static_cast<size_t>(what.num_ranks);
  const size_t own = part * static_cast<size_t>(rank);
  std::vector<Part> parts;
  switch (what.op) {
    case Op::kAllReduce:
      return {{.count = count, .is_sum = true}};
    case Op::kReduce:
      return rank == 0 ? std::vector<Part>{{.count = count, .is_sum = true}} : parts;
    case Op::kBroadcast:
      return {{.count = count}};
    case Op::kReduceScatter:
      return {{.count = part, .is_sum = true, .first = own}};
    case Op::kSendRecv:
      return {{.count = count, .source = 1 - rank}};
    case Op::kBarrier:
      return {};
    case Op::kAllGather:
    case Op::kAllToAll:
      break;
  }
  for (int source = 0; source < what.num_ranks; ++source) {
    parts.push_back({.offset = part * static_cast<size_t>(source),
                     .count = part,
                     .source = source,
                     .first = what.op == Op::kAllToAll ? own : 0});
  }
  return parts;
}

}  // namespace

void fill_input(const CollectiveCase& what, int rank, std::byte* input) {
  const auto period = one_period(what, {.source = rank});
  const size_t num_bytes = plan_buffers(what, 0).input_bytes;
  for (size_t at = 0; at < num_bytes; at += period.size()) {
    std::memcpy(input + at, period.data(), std::min(period.size(), num_bytes - at));
  }
}

std::string find_difference(const CollectiveCase& what, int rank, const std::byte* result) {
  const size_t size = size_of(what.dtype);
  for (const Part& part : expected_parts(what, rank)) {
    const auto period = one_period(what, part);
    const std::byte* begin = result + part.offset * size;
    for (size_t at = 0; at < part.count * size; at += period.size()) {
      const size_t length = std::min(period.size(), part.count * size - at);
      if (std::memcmp(begin + at, period.data(), length) == 0) continue;
      const auto differing =
          std::mismatch(period.begin(), period.begin() + static_cast<std::ptrdiff_t>(length), begin + at);
      const size_t byte = at + static_cast<size_t>(differing.first - period.begin());
      return "element " + std::to_string(part.offset + byte / size) + " of rank " + std::to_string(rank) + " is wrong";
    }
  }
  return {};
}

}  // namespace cohort::bench
