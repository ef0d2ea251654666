#include "cohort/shm/terms/types.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace cohort::shm {
namespace {

template <class Enum>
std::set<std::string> names(int count) {
  std::set<std::string> all;
  for (int i = 0; i < count; ++i) all.insert(name_of(static_cast<Enum>(i)));
  return all;
}

TEST(Types, EveryValueHasANameOfItsOwn) {
  EXPECT_EQ(names<DType>(kNumDTypes).size(), kNumDTypes);
  EXPECT_EQ(names<ReduceOp>(kNumReduceOps).size(), kNumReduceOps);
  EXPECT_EQ(names<OpKind>(kNumOpKinds).size(), kNumOpKinds);
  EXPECT_STREQ(name_of(DType::kBFloat16), "bfloat16");
  EXPECT_STREQ(name_of(ReduceOp::kPremulSum), "PREMUL_SUM");
  EXPECT_STREQ(name_of(OpKind::kAllToAll), "all_to_all");
  EXPECT_STREQ(name_of(static_cast<OpKind>(77)), "an unknown operation");
}

TEST(Types, KnowsWhatCannotBeReduced) {
  EXPECT_TRUE(can_reduce(DType::kFloat16, ReduceOp::kAvg));
  EXPECT_FALSE(can_reduce(DType::kFloat16, ReduceOp::kBand));
  EXPECT_FALSE(can_reduce(DType::kBool, ReduceOp::kAvg));
  EXPECT_TRUE(can_reduce(DType::kBool, ReduceOp::kBxor));
  EXPECT_FALSE(can_reduce(DType::kBytes, ReduceOp::kSum));
  EXPECT_FALSE(can_reduce(DType::kFloat32, ReduceOp::kNone));
}

}  // namespace
}  // namespace cohort::shm
