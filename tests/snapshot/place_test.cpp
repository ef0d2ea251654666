#include "cohort/snapshot/place.h"

#include <gtest/gtest.h>

#include "cohort/base/system/env.h"

namespace cohort::snapshot {
namespace {

class PlaceTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& [name, value] : variables_) base::set_env(name, value);
  }
  void TearDown() override {
    for (const auto& [name, value] : variables_) base::unset_env(name);
  }
  const std::vector<std::pair<const char*, const char*>> variables_ = {
      {"COHORT_SNAPSHOTS", "name:1"}, {"RANK", "3"},           {"WORLD_SIZE", "4"},
      {"LOCAL_WORLD_SIZE", "2"},      {"GROUP_RANK", "1"},     {"GROUP_WORLD_SIZE", "2"},
      {"MASTER_ADDR", "10.0.0.1"},    {"MASTER_PORT", "29500"}};
};

TEST_F(PlaceTest, IsWhatTheLauncherSays) {
  const auto place = find_place();
  ASSERT_TRUE(place && *place);
  EXPECT_EQ((*place)->server, "name");
  EXPECT_EQ((*place)->first_rank(), 2);
  EXPECT_EQ((*place)->node, 1);
  EXPECT_EQ((*place)->store_host, "10.0.0.1");
  EXPECT_EQ((*place)->store_port, 29500);
  EXPECT_EQ(place_value("name", 1), "name:1");
}

TEST_F(PlaceTest, IsNowhereWithoutALauncher) {
  base::unset_env("COHORT_SNAPSHOTS");
  EXPECT_FALSE(*find_place());
}

TEST_F(PlaceTest, MustFit) {
  for (const char* value : {"name", "name:2", "name:x", "name:-1"}) {
    base::set_env("COHORT_SNAPSHOTS", value);
    ASSERT_FALSE(find_place());
    EXPECT_EQ(find_place().error().message(), std::string("COHORT_SNAPSHOTS=\"") + value +
                                                  "\" does not fit RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, "
                                                  "GROUP_WORLD_SIZE and MASTER_ADDR");
  }
  base::set_env("COHORT_SNAPSHOTS", "name:1");
  base::set_env("RANK", "0");
  EXPECT_FALSE(find_place());
  base::unset_env("RANK");
  EXPECT_EQ(find_place().error().message(), "environment variable RANK is not set");
}

}  // namespace
}  // namespace cohort::snapshot
