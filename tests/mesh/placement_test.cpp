#include "cohort/mesh/placement.h"

#include <gtest/gtest.h>

#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;

TEST(Placement, ComparesKindAndValues) {
  const Placements all{Replicate(),        Shard(0),           Shard(1),  StridedShard(0),
                       StridedShard(0, 2), StridedShard(1, 2), Partial(), Partial("max")};
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < all.size(); ++j) EXPECT_EQ(all[i] == all[j], i == j) << all[i] << " and " << all[j];
  }
  EXPECT_EQ(Partial(), Partial("sum"));
}

TEST(Placement, KnowsItsKind) {
  const Placement shard = Shard(2);
  EXPECT_TRUE(shard.is_shard() && shard.is_shard(2) && shard.is_shard_like());
  EXPECT_FALSE(shard.is_shard(1) || shard.is_strided_shard() || shard.is_replicate() || shard.is_partial());
  const Placement strided = StridedShard(1, 3);
  EXPECT_TRUE(strided.is_strided_shard() && strided.is_shard_like());
  EXPECT_FALSE(strided.is_shard());
  EXPECT_EQ(strided.dim(), 1);
  EXPECT_EQ(strided.split_factor(), 3);
  EXPECT_EQ(shard.split_factor(), 1);
  EXPECT_TRUE(Placement(Replicate()).is_replicate());
  EXPECT_EQ(Placement(Partial("min")).reduce_op(), "min");
}

TEST(Placement, TextsArePythons) {
  const Placements all{Replicate(), Shard(-1), StridedShard(0, 2), Partial("avg")};
  EXPECT_EQ(to_string(all), "(Replicate(), Shard(dim=-1), _StridedShard(dim=0, sf=2), Partial(avg))");
  EXPECT_EQ(to_string(Placements{Shard(0)}), "(Shard(dim=0),)");
  std::string short_texts;
  for (const auto& placement : all) short_texts += placement.short_text() + " ";
  EXPECT_EQ(short_texts, "R S(-1) _S(0, 2) P(avg) ");
}

TEST(Placement, NegativeDimsCountFromTheEnd) {
  EXPECT_EQ(mesh::normalize_placements({Shard(-1), Replicate(), StridedShard(-3, 2), Partial()}, 3),
            (Placements{Shard(2), Replicate(), StridedShard(0, 2), Partial()}));
}

TEST(Placement, WrongUseMessage) {
  EXPECT_EQ(error_of([] { mesh::normalize_placements({Shard(2)}, 2); }),
            "Dimension out of range (expected to be in range of [-2, 1], but got 2)");
  EXPECT_EQ(error_of([] { Placement(Replicate()).dim(); }), "[cohort] Replicate() has no dim");
  EXPECT_EQ(error_of([] { Placement(Partial()).split_factor(); }), "[cohort] Partial(sum) has no split_factor");
  EXPECT_EQ(error_of([] { Placement(Shard(0)).reduce_op(); }), "[cohort] Shard(dim=0) has no reduce_op");
}

}  // namespace
}  // namespace cohort
