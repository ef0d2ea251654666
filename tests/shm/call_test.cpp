#include "cohort/shm/trace/call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::shm {
namespace {

using testing::ElementsAre;

TEST(Call, SurvivesItsSignature) {
  const Call call{.kind = OpKind::kReduceScatter,
                  .dtype = DType::kFloat64,
                  .reduce_op = ReduceOp::kPremulSum,
                  .is_shared = true,
                  .root = 70000,
                  .count = uint64_t{1} << 40};
  const auto back = decode_call(encode(call));
  EXPECT_EQ(back.kind, call.kind);
  EXPECT_EQ(back.dtype, call.dtype);
  EXPECT_EQ(back.reduce_op, call.reduce_op);
  EXPECT_TRUE(back.is_shared);
  EXPECT_EQ(back.root, 70000);
  EXPECT_EQ(back.count, call.count);
  EXPECT_EQ(decode_call(encode({.kind = OpKind::kBarrier})).root, -1);
}

TEST(Call, RanksAgreeUnlessSomethingButMemoryAndPurposeDiffers) {
  const Call call{.kind = OpKind::kReduce, .dtype = DType::kInt8, .reduce_op = ReduceOp::kMax, .root = 1, .count = 5};
  auto other = call;
  other.is_shared = true;
  other.purpose = 31;
  EXPECT_EQ(decode_call(encode(other)).purpose, 31);
  EXPECT_TRUE(agree(encode(call), encode(other)));
  const auto differs = [&](auto change) {
    auto changed = call;
    change(changed);
    return !agree(encode(call), encode(changed));
  };
  EXPECT_TRUE(differs([](Call& c) { c.kind = OpKind::kAllReduce; }));
  EXPECT_TRUE(differs([](Call& c) { c.dtype = DType::kUInt8; }));
  EXPECT_TRUE(differs([](Call& c) { c.reduce_op = ReduceOp::kMin; }));
  EXPECT_TRUE(differs([](Call& c) { c.root = 0; }));
  EXPECT_TRUE(differs([](Call& c) { c.count = 6; }));
}

TEST(Call, TableMessage) {
  const Call sum{.kind = OpKind::kAllReduce, .dtype = DType::kFloat32, .reduce_op = ReduceOp::kSum, .count = 8};
  const Call broadcast{.kind = OpKind::kBroadcast, .dtype = DType::kInt64, .root = 2, .count = 3};
  const Call reduce{
      .kind = OpKind::kReduce, .dtype = DType::kInt64, .reduce_op = ReduceOp::kMin, .root = 0, .count = 1};
  EXPECT_THAT(table_of({encode(sum), encode(broadcast), encode(sum), encode(sum), encode({.kind = OpKind::kBarrier}),
                        encode(reduce), encode({.kind = OpKind::kAllToAll, .dtype = DType::kBool})}),
              ElementsAre("ranks 0, 2 and 3 call all_reduce(SUM) of 8 float32",
                          "rank 1 calls broadcast from rank 2 of 3 int64", "rank 4 calls barrier",
                          "rank 5 calls reduce(MIN) to rank 0 of 1 int64", "rank 6 calls all_to_all of bool"));
}

TEST(Call, WhatTheLibraryCallsIsSaidMessage) {
  const PurposeTexts texts{
      .named = [](std::string call, uint8_t purpose) { return call + " for " + std::to_string(purpose); },
      .hint = [](uint8_t one, uint8_t other) { return one == 11 || other == 11 ? "missing" : "uneven"; }};
  const auto buffers =
      encode({.kind = OpKind::kBroadcast, .dtype = DType::kFloat32, .purpose = 1, .root = 0, .count = 5});
  const auto own = encode({.kind = OpKind::kBroadcast, .dtype = DType::kFloat32, .root = 0, .count = 5});
  const auto barrier = encode({.kind = OpKind::kBarrier});
  EXPECT_THAT(table_of({buffers, own, barrier, buffers}, texts),
              ElementsAre("ranks 0 and 3 call broadcast from rank 0 of 5 float32 for 1",
                          "rank 1 calls broadcast from rank 0 of 5 float32 for 0", "rank 2 calls barrier for 0"));
  EXPECT_EQ(hint_for({buffers, barrier}, texts), "uneven");
  const auto clipping = encode(
      {.kind = OpKind::kAllReduce, .dtype = DType::kFloat64, .reduce_op = ReduceOp::kSum, .purpose = 11, .count = 1});
  EXPECT_EQ(decode_call(clipping).purpose, 11);
  EXPECT_EQ(table_of({buffers, clipping}, texts)[1], "rank 1 calls all_reduce(SUM) of 1 float64 for 11");
  EXPECT_EQ(hint_for({buffers, clipping}, texts), "missing");
  EXPECT_EQ(hint_for({own, barrier}, texts),
            "make every rank call the same operation with the same shapes, dtypes and roots, in the same order");
}

}  // namespace
}  // namespace cohort::shm
