#include "cohort/store/keys/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace cohort::store {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class TableTest : public ::testing::Test {
 protected:
  std::vector<uint64_t> take_ready() { return std::exchange(ready_, {}); }

  std::vector<uint64_t> ready_;
  Table table_{[this](uint64_t waiter) { ready_.push_back(waiter); }};
};

TEST_F(TableTest, CompareSetWhereNothingIsTellsTheExpectedValueBack) {
  EXPECT_EQ(table_.compare_set("c", "x", "z"), "x");
  EXPECT_EQ(table_.get("c"), nullptr);
  EXPECT_EQ(table_.compare_set("c", "", "x"), "x");
  EXPECT_EQ(table_.compare_set("c", "x", "y"), "y");
  EXPECT_EQ(table_.compare_set("c", "x", "z"), "y");
}

TEST_F(TableTest, AddRefusesWhatIsNoNumberMessage) {
  EXPECT_EQ(*table_.add("n", 3), 3);
  EXPECT_EQ(*table_.add("n", -5), -2);
  EXPECT_EQ(*table_.get("n"), "-2");
  table_.set("a", "bc");
  EXPECT_EQ(table_.add("a", 1).error().message(), "cannot add 1 to the value of key \"a\", \"bc\"");
  table_.set("most", std::to_string(std::numeric_limits<int64_t>::max()));
  EXPECT_FALSE(table_.add("most", 1).ok());
  EXPECT_EQ(*table_.get("most"), "9223372036854775807");
}

TEST_F(TableTest, AWaiterHearsOfTheLastOfItsKeysOnce) {
  table_.set("a", "1");
  EXPECT_TRUE(table_.wait(1, {"a"}));
  EXPECT_TRUE(table_.wait(1, {}));
  EXPECT_FALSE(table_.wait(1, {"a", "b", "c", "c"}));
  table_.set("b", "1");
  EXPECT_THAT(take_ready(), IsEmpty());
  table_.append("c", "1");
  EXPECT_THAT(take_ready(), ElementsAre(1));
  table_.set("c", "2");
  EXPECT_THAT(take_ready(), IsEmpty());
  EXPECT_EQ(table_.num_waiters(), 0);
}

TEST_F(TableTest, AWaiterThatHasSeenAKeyNeedNotSeeItStay) {
  table_.wait(1, {"a", "b"});
  table_.set("a", "1");
  table_.delete_key("a");
  table_.set("b", "1");
  EXPECT_THAT(take_ready(), ElementsAre(1));
}

TEST_F(TableTest, AnEntryOfAQueueWakesOneWaiter) {
  table_.wait(1, {"q", "b"});
  table_.wait(2, {"q"});
  table_.wait(3, {"q"});
  table_.queue_push("q", "x");
  EXPECT_THAT(take_ready(), ElementsAre(2));
  EXPECT_TRUE(table_.check({"q"}));
  table_.set("b", "1");
  EXPECT_THAT(take_ready(), ElementsAre(1));
  EXPECT_EQ(table_.queue_pop("q"), "x");
  EXPECT_EQ(table_.queue_pop("q"), std::nullopt);
  EXPECT_FALSE(table_.check({"q"}));
  table_.queue_push("q", "y");
  EXPECT_THAT(take_ready(), ElementsAre(3));
  EXPECT_EQ(table_.queue_len("q"), 1);
}

// As PyTorch's server: the key counts, and stays.
TEST_F(TableTest, ABarrierOpensOnceForGood) {
  EXPECT_FALSE(*table_.barrier(1, "b", 3));
  EXPECT_FALSE(*table_.barrier(2, "b", 3));
  table_.stop_waiting(2);
  EXPECT_TRUE(*table_.barrier(3, "b", 3));
  EXPECT_THAT(take_ready(), ElementsAre(1));
  EXPECT_TRUE(*table_.barrier(2, "b", 3));
  EXPECT_EQ(*table_.get("b"), "4");
  table_.set("text", "x");
  EXPECT_FALSE(table_.barrier(1, "text", 2).ok());
}

TEST_F(TableTest, WhoLeavesIsForgotten) {
  table_.wait(1, {"a", "b"});
  ASSERT_FALSE(*table_.barrier(2, "c", 2));
  table_.stop_waiting(1);
  table_.stop_waiting(2);
  table_.stop_waiting(7);
  EXPECT_EQ(table_.num_waiters(), 0);
  table_.set("a", "1");
  table_.set("b", "1");
  EXPECT_TRUE(*table_.barrier(3, "c", 2));
  EXPECT_THAT(take_ready(), IsEmpty());
  EXPECT_THAT(table_.list_keys(), UnorderedElementsAre("a", "b", "c"));
  EXPECT_EQ(table_.num_keys(), 3);
}

TEST_F(TableTest, KnowsHowMuchItHolds) {
  const std::string large(1000, 'x');
  table_.set("a", large);
  EXPECT_EQ(table_.num_bytes(), 1065);
  table_.set("a", "short");
  table_.append("a", "er");
  EXPECT_EQ(table_.num_bytes(), 72);
  table_.compare_set("b", "", large);
  table_.compare_set("b", "other", "");
  table_.append("c", large);
  EXPECT_EQ(table_.num_bytes(), 72 + 2 * 1065);
  for (const auto* key : {"a", "b", "c", "none"}) table_.delete_key(key);
  EXPECT_EQ(table_.num_bytes(), 0);
  table_.queue_push("q", large);
  table_.queue_push("q", "");
  EXPECT_EQ(table_.num_bytes(), 1065 + 65);
  table_.queue_pop("q");
  table_.queue_pop("q");
  table_.queue_pop("q");
  EXPECT_EQ(table_.num_bytes(), 0);
  table_.wait(1, {"d", "e"});
  table_.wait(2, {"d"});
  table_.wait(3, {"e", "f"});
  EXPECT_EQ(table_.num_bytes(), 5 * 65);
  table_.wait(3, {"f"});
  EXPECT_EQ(table_.num_bytes(), 4 * 65);
  table_.set("d", "");
  EXPECT_THAT(take_ready(), ElementsAre(2));
  EXPECT_EQ(table_.num_bytes(), 3 * 65);
  table_.stop_waiting(3);
  table_.set("e", "");
  for (const auto* key : {"d", "e"}) table_.delete_key(key);
  EXPECT_EQ(table_.num_bytes(), 0);
}

}  // namespace
}  // namespace cohort::store
