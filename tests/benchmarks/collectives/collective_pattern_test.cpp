#include "benchmarks/collectives/collective_pattern.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace cohort::bench {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<Bytes> inputs_of(const CollectiveCase& what) {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < what.num_ranks; ++rank) {
    inputs.emplace_back(plan_buffers(what, 0).input_bytes);
    fill_input(what, rank, inputs.back().data());
  }
  return inputs;
}

float element(const Bytes& bytes, size_t index) {
  float value = 0;
  std::memcpy(&value, &bytes[index * sizeof value], sizeof value);
  return value;
}

void set_element(Bytes& bytes, size_t index, float value) {
  std::memcpy(&bytes[index * sizeof value], &value, sizeof value);
}

Bytes slice(const Bytes& bytes, size_t begin, size_t size) {
  const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(size)};
}

void append(Bytes& bytes, const Bytes& more) { bytes.insert(bytes.end(), more.begin(), more.end()); }

Bytes sum_of(const std::vector<Bytes>& inputs) {
  Bytes sum = inputs.front();
  for (size_t i = 0; i < sum.size() / sizeof(float); ++i) {
    float value = 0;
    for (const Bytes& input : inputs) value += element(input, i);
    set_element(sum, i, value);
  }
  return sum;
}

// What the operation leaves on a rank, told from the inputs alone.
Bytes result_of(const CollectiveCase& what, const std::vector<Bytes>& inputs, int rank) {
  const size_t part = what.num_bytes / static_cast<size_t>(what.num_ranks);
  const size_t own = part * static_cast<size_t>(rank);
  Bytes result;
  switch (what.op) {
    case Op::kAllReduce:
    case Op::kReduce:
      return sum_of(inputs);
    case Op::kBroadcast:
      return inputs[0];
    case Op::kReduceScatter:
      return slice(sum_of(inputs), own, part);
    case Op::kSendRecv:
      return inputs[static_cast<size_t>(1 - rank)];
    case Op::kAllGather:
      for (const Bytes& input : inputs) append(result, input);
      return result;
    case Op::kAllToAll:
      for (const Bytes& input : inputs) append(result, slice(input, own, part));
      return result;
    case Op::kBarrier:
      break;
  }
  return result;
}

TEST(FindDifference, AcceptsRightResultsOnly) {
  for (const Op op : kAllOps) {
    if (op == Op::kBarrier) continue;
    // More than a period of the test values, and not a multiple of it.
    const CollectiveCase what{.op = op, .num_bytes = 4 * 2 * 3000, .num_ranks = 2};
    const auto inputs = inputs_of(what);
    for (int rank = 0; rank < what.num_ranks; ++rank) {
      auto result = result_of(what, inputs, rank);
      EXPECT_EQ(find_difference(what, rank, result.data()), "") << name_of(op) << " rank " << rank;
      if (op == Op::kReduce && rank > 0) continue;
      set_element(result, 2500, element(result, 2500) + 1);
      EXPECT_EQ(find_difference(what, rank, result.data()),
                "element 2500 of rank " + std::to_string(rank) + " is wrong")
          << name_of(op);
    }
  }
}

TEST(FindDifference, LooksAtEveryPart) {
  const CollectiveCase what{.op = Op::kAllGather, .num_bytes = 4 * 4 * 1500, .num_ranks = 4};
  auto result = result_of(what, inputs_of(what), 1);
  EXPECT_EQ(find_difference(what, 1, result.data()), "");
  set_element(result, 5999, -1);
  EXPECT_EQ(find_difference(what, 1, result.data()), "element 5999 of rank 1 is wrong");
}

TEST(FindDifference, KnowsBFloat16) {
  const CollectiveCase what{.op = Op::kAllReduce, .dtype = DType::kBFloat16, .num_bytes = 8, .num_ranks = 2};
  // Rank 0: 0 7 1 8; rank 1: 5 12 6 0. Sums 5 19 7 8, the upper halves of their float32.
  const uint16_t sums[4] = {0x40a0, 0x4198, 0x40e0, 0x4100};
  EXPECT_EQ(find_difference(what, 0, reinterpret_cast<const std::byte*>(sums)), "");
}

TEST(FindDifference, IsNeverBlindToNothingDone) {
  for (const Op op : {Op::kAllReduce, Op::kReduceScatter, Op::kAllToAll, Op::kAllGather, Op::kSendRecv}) {
    const CollectiveCase what{.op = op, .num_bytes = 64, .num_ranks = 2};
    const auto inputs = inputs_of(what);
    Bytes untouched = inputs[1];
    untouched.resize(64);
    EXPECT_NE(find_difference(what, 1, untouched.data()), "") << name_of(op);
  }
}

}  // namespace
}  // namespace cohort::bench
