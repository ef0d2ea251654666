#include "cohort/elastic/plan/world_layout.h"

#include <gtest/gtest.h>

namespace cohort::elastic {
namespace {

rendezvous::Node node(int local_world_size, const std::string& role = "default") {
  return {.host = "h", .address = "a", .local_world_size = local_world_size, .role = role};
}

TEST(WorldLayout, OneNode) {
  const WorldLayout layout = layout_of({.nodes = {node(3)}, .store_address = ""});
  EXPECT_EQ(layout.first_rank, 0);
  EXPECT_EQ(layout.world_size, 3);
  EXPECT_EQ(layout.role_world_size, 3);
}

TEST(WorldLayout, NodesOfDifferentSizesAndRoles) {
  rendezvous::Round round{
      .node_rank = 2, .nodes = {node(2, "actor"), node(4, "learner"), node(1, "actor"), node(8)}, .store_address = ""};
  const WorldLayout layout = layout_of(round);
  EXPECT_EQ(layout.num_nodes, 4);
  EXPECT_EQ(layout.first_rank, 6);
  EXPECT_EQ(layout.local_world_size, 1);
  EXPECT_EQ(layout.world_size, 15);
  EXPECT_EQ(layout.first_role_rank, 2);
  EXPECT_EQ(layout.role_world_size, 3);
}

}  // namespace
}  // namespace cohort::elastic
