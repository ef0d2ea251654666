#include "benchmarks/collectives/roof.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace cohort::bench {
namespace {

constexpr size_t kFloats = (size_t{3} << 20) / sizeof(float);  // no power of two: segments have odd lengths

struct Tensors {
  std::vector<float> input = std::vector<float>(kFloats);
  std::vector<float> output = std::vector<float>(kFloats, -1);
  Buffers buffers(bool is_in_place) {
    auto* in = reinterpret_cast<std::byte*>(input.data());
    return {in, is_in_place ? in : reinterpret_cast<std::byte*>(output.data())};
  }
};

CollectiveCase make_roof_case(Op op, int num_ranks, Memory memory = Memory::kPrivate) {
  return {.op = op, .num_bytes = kFloats * sizeof(float), .num_ranks = num_ranks, .memory = memory};
}

void fill(std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 97);
}

// The rank that stages its own bytes reads them back as if they were a peer's: there and back is a copy.
TEST(Roof, MovesEveryByteThroughStaging) {
  for (const auto& name : roof_styles(make_roof_case(Op::kSendRecv, 2))) {
    Tensors tensors;
    fill(tensors.input);
    Roof(0, parse_roof_style(name)).prepare(make_roof_case(Op::kSendRecv, 2), tensors.buffers(false))();
    EXPECT_EQ(tensors.output, tensors.input) << name;
  }
}

TEST(Roof, AddsOwnAndStagedElements) {
  const auto what = make_roof_case(Op::kAllReduce, 2);
  for (const auto& name : roof_styles(what)) {
    if (parse_roof_style(name).plan == TrafficPlan::kCut) continue;
    Tensors tensors;
    fill(tensors.input);
    auto expected = tensors.input;
    for (float& value : expected) value *= 2;
    Roof(1, parse_roof_style(name)).prepare(what, tensors.buffers(true))();
    EXPECT_EQ(tensors.input, expected) << name;
  }
}

TEST(Roof, ReadsAndWritesAllRanksTensorsInSharedMemory) {
  for (const int num_ranks : {2, 3, 4, 8}) {
    const auto what = make_roof_case(Op::kAllReduce, num_ranks, Memory::kShared);
    Tensors tensors;
    std::fill(tensors.input.begin(), tensors.input.end(), 1.0F);
    const auto style = parse_roof_style(roof_styles(what).front());
    Roof(0, style).prepare(what, tensors.buffers(true))();
    EXPECT_EQ(std::count(tensors.input.begin(), tensors.input.end(), static_cast<float>(num_ranks)),
              static_cast<std::ptrdiff_t>(kFloats))
        << num_ranks;
  }
}

TEST(Roof, WritesTheWholeOutput) {
  for (const Memory memory : {Memory::kPrivate, Memory::kShared}) {
    for (const Op op : {Op::kAllGather, Op::kAllToAll}) {
      for (const int num_ranks : {2, 4, 8}) {
        const auto what = make_roof_case(op, num_ranks, memory);
        for (const auto& name : roof_styles(what)) {
          Tensors tensors;
          Roof(1, parse_roof_style(name)).prepare(what, tensors.buffers(false))();
          EXPECT_EQ(std::count(tensors.output.begin(), tensors.output.end(), -1.0F), 0)
              << case_name(what) << " " << name;
        }
      }
    }
  }
}

TEST(RoofStyles, AreThoseThatMakeADifference) {
  EXPECT_EQ(roof_styles(make_roof_case(Op::kAllReduce, 2)).size(), 8U);
  EXPECT_EQ(roof_styles(make_roof_case(Op::kBroadcast, 2)).size(), 4U);
  EXPECT_EQ(roof_styles(make_roof_case(Op::kAllReduce, 2, Memory::kShared)),
            (std::vector<std::string>{"roof-whole-loop-256KiB", "roof-whole-memcpy-256KiB"}));
  EXPECT_THROW(parse_roof_style("roof-whole"), std::runtime_error);
  EXPECT_THROW(parse_roof_style("gloo"), std::runtime_error);
}

}  // namespace
}  // namespace cohort::bench
