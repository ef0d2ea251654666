// Which version ranks go on from, from lists alone.
#include "cohort/snapshot/choice.h"

#include <gtest/gtest.h>

#include <limits>

namespace cohort::snapshot {
namespace {

/// Nodes of two ranks. `shared`: of what all have alike.
StoredVersion held(int node, int rank, int64_t step, bool is_copy = false, int world_size = 4, uint64_t shared = 0) {
  Version version{
      .step = step, .world_size = world_size, .rank = rank, .first_rank = rank / 2 * 2, .local_world_size = 2};
  version.shared_total = shared;
  version.suits_other_worlds = shared > 0;
  return {.node = node,
          .id = is_copy ? copy_id(rank, 0) : id_of(rank, 0),
          .is_copy = is_copy,
          .size = 1 << 20,
          .version = version};
}

struct Chosen {
  std::optional<Choice> choice;
  std::string why_not;
};

Chosen choice_of(const std::vector<StoredVersion>& all, int world_size = 4) {
  Chosen chosen;
  chosen.choice = choose(all, world_size, &chosen.why_not);
  return chosen;
}

TEST(Choice, IsTheNewestThatAllRanksHave) {
  const auto chosen =
      choice_of({held(0, 0, 5), held(0, 0, 6), held(0, 1, 5), held(1, 2, 6), held(1, 2, 5), held(1, 3, 5)});
  ASSERT_TRUE(chosen.choice);
  EXPECT_EQ(chosen.choice->step, 5);
  EXPECT_EQ(chosen.choice->world_size, 4);
}

TEST(Choice, TheLeastStepThereIsComesLast) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const auto chosen = choice_of({held(0, 0, kLeast, false, 1), held(0, 0, 5, false, 1)}, 1);
  ASSERT_TRUE(chosen.choice);
  EXPECT_EQ(chosen.choice->step, 5);
}

TEST(Choice, NothingIsNoReason) {
  EXPECT_FALSE(choice_of({}).choice);
  EXPECT_EQ(choice_of({}).why_not, "");
}

TEST(Choice, SaysWhoseIsLost) {
  const auto chosen = choice_of({held(0, 0, 5), held(0, 1, 4), held(1, 2, 5)});
  EXPECT_FALSE(chosen.choice);
  EXPECT_EQ(chosen.why_not, "the snapshot of step 5 lacks the state of ranks 1 and 3");
}

TEST(Choice, CopiesCount) {
  const std::vector<StoredVersion> all = {held(0, 2, 5, true), held(0, 3, 5, true), held(0, 0, 5), held(0, 1, 5),
                                          held(1, 0, 5, true)};
  const auto chosen = choice_of(all);
  ASSERT_TRUE(chosen.choice);
  EXPECT_EQ(find_own(all, *chosen.choice, 2, 1)->id, "copy/2/0");
  EXPECT_EQ(find_own(all, *chosen.choice, 0, 1)->node, 1) << "a copy on this node is nearer";
  EXPECT_EQ(find_own(all, *chosen.choice, 0, 0)->id, "0/0");
  EXPECT_EQ(find_own(all, *chosen.choice, 1, 7)->id, "1/0");
}

TEST(Choice, SharesMustBeWholeOnOneNode) {
  std::vector<StoredVersion> all = {held(0, 0, 5, false, 4, 64), held(0, 1, 5, false, 4, 64),
                                    held(1, 2, 5, false, 4, 64), held(0, 3, 5, true, 4, 64)};
  auto chosen = choice_of(all);
  ASSERT_TRUE(chosen.choice);
  EXPECT_EQ(find_shared(all, *chosen.choice, 1).size(), 2u);
  EXPECT_EQ(find_shared(all, *chosen.choice, 1)[0]->node, 0) << "node 1 lacks rank 3's share";
  all.push_back(held(1, 3, 5, false, 4, 64));
  EXPECT_EQ(find_shared(all, *chosen.choice, 1)[0]->node, 1);
  EXPECT_EQ(find_shared(all, *chosen.choice, 0)[0]->node, 0);
  chosen = choice_of({held(0, 0, 5, false, 4, 64), held(1, 1, 5, true, 4, 64), held(1, 2, 5, false, 4, 64),
                      held(0, 3, 5, true, 4, 64)});
  EXPECT_FALSE(chosen.choice);
  EXPECT_EQ(chosen.why_not, "no node has the complete replicated state of step 5");
}

TEST(Choice, LayoutsMustBeAlike) {
  std::vector<StoredVersion> all = {held(0, 0, 5, false, 2, 64), held(0, 1, 5, false, 2, 64)};
  all[1].version.shared_layout = 3;
  const auto chosen = choice_of(all, 2);
  EXPECT_FALSE(chosen.choice);
  EXPECT_EQ(chosen.why_not, "in the snapshot of step 5 the replicated state differs between ranks");
}

TEST(Choice, AnotherNumberOfRanksNeedsWhatAllHaveAlike) {
  const auto chosen = choice_of({held(0, 0, 5), held(0, 1, 5), held(1, 2, 5), held(1, 3, 5)}, 2);
  EXPECT_FALSE(chosen.choice);
  EXPECT_EQ(chosen.why_not, "the snapshot of step 5 is sharded over 4 ranks, and this run has 2");
  const auto alike = choice_of({held(1, 2, 5, false, 4, 64), held(1, 3, 5, false, 4, 64)}, 2);
  ASSERT_TRUE(alike.choice);
  EXPECT_EQ(alike.choice->world_size, 4);
}

TEST(Choice, TheSameNumberOfRanksComesFirst) {
  const auto chosen = choice_of({held(0, 0, 5, false, 2, 64), held(0, 1, 5, false, 2, 64), held(0, 0, 5, false, 4, 64),
                                 held(0, 1, 5, false, 4, 64)},
                                2);
  ASSERT_TRUE(chosen.choice);
  EXPECT_EQ(chosen.choice->world_size, 2);
}

TEST(Choice, ListsComeBackAsTheyWere) {
  std::vector<StoredVersion> all = {held(0, 0, 5), held(0, 2, -6, true, 4, 64)};
  all[1].version.shared_layout = ~uint64_t{0};
  const auto back = parse_list(list_in_text(all), 3);
  ASSERT_TRUE(back);
  ASSERT_EQ(back->size(), 2u);
  EXPECT_EQ((*back)[1].version, all[1].version);
  EXPECT_EQ((*back)[1].node, 3);
  EXPECT_TRUE((*back)[1].is_copy);
  EXPECT_FALSE((*back)[0].is_copy);
}

TEST(Choice, ListsOfOthersAreNotBelieved) {
  for (const std::string text : {"0/0 1 2", "0/0 9000 1 1 0 0 1 0 x 0 0 0 0 0", "0/0 100 1 1 0 0 1 0 0 0 0 0 0 0",
                                 "0/0 -1 1 1 0 0 1 0 0 0 0 0 0 0", "0/0 1048576 1 4294967297 0 0 1 0 0 0 0 0 0 0",
                                 "0/0 1048576 1 1 5 0 1 0 0 0 0 0 0 0", "0/0 1048576 1 1 0 0 1 0 -1 0 0 0 0 0"}) {
    const auto parsed = parse_list(text, 0);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().message(), "a node's list of snapshots is not understood: " + text);
  }
}

}  // namespace
}  // namespace cohort::snapshot
