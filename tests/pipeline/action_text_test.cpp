#include "cohort/pipeline/action_text.h"

#include <gtest/gtest.h>

#include <string>

namespace cohort::pipeline {
namespace {

std::string again(const std::string& text) {
  const auto action = parse_action(text);
  return action ? text_of(*action) : action.error().describe();
}

std::string refusal(const std::string& text, const std::string& why) {
  return "Invalid action string: " + text +
         ", should be formatted as [stage][action type][(microbatch)] e.g. 2F0: " + why;
}

TEST(ActionText, IsReadAndWritten) {
  for (const std::string text : {"2F0", "0I3", "1W12", "7B1", "1UNSHARD", "1RESHARD", "3SEND_F1", "3RECV_F0",
                                 "3SEND_B9", "0RECV_B1", "5REDUCE_GRAD", "(2F1;1B0)OVERLAP_F_B", ""}) {
    EXPECT_EQ(again(text), text);
  }
  EXPECT_EQ(again("  2F0 "), "2F0");
  EXPECT_EQ(again("( 2F1 ; 1B0 )OVERLAP_F_B"), "(2F1;1B0)OVERLAP_F_B");
  EXPECT_EQ(*parse_action("12SEND_B34"), (Action{ActionKind::kSendBackward, 12, 34}));
  EXPECT_EQ(*parse_action("4UNSHARD"), (Action{ActionKind::kUnshard, 4}));
  EXPECT_EQ(parse_action("(2F1;1B0)OVERLAP_F_B")->parts.size(), 2u);
}

TEST(ActionText, RefusalsSayWhy) {
  EXPECT_EQ(again("F0"), refusal("F0", "it does not begin with a stage"));
  EXPECT_EQ(again("2X0"), refusal("2X0", "\"X\" is not an action type"));
  EXPECT_EQ(again("2f0"), refusal("2f0", "\"f\" is not an action type"));
  EXPECT_EQ(again("2F"), refusal("2F", "F has a microbatch"));
  EXPECT_EQ(again("2UNSHARD1"), refusal("2UNSHARD1", "UNSHARD has no microbatch"));
  EXPECT_EQ(again("2F0x"), refusal("2F0x", "\"x\" follows it"));
  EXPECT_EQ(again("16384F0"), refusal("16384F0", "a pipeline has fewer than 16384 stages"));
  EXPECT_EQ(again("99999999999999999999F0"),
            refusal("99999999999999999999F0", "a pipeline has fewer than 16384 stages"));
  EXPECT_EQ(again("0F1048576"), refusal("0F1048576", "a batch has fewer than 1048576 microbatches"));
  EXPECT_EQ(again("0OVERLAP_F_B1"), refusal("0OVERLAP_F_B1", "OVERLAP_F_B follows a list of actions in brackets"));
  EXPECT_EQ(again("(0F0;0B0"), refusal("(0F0;0B0", "its bracket is not closed"));
  EXPECT_EQ(again("(0F0)F"), refusal("(0F0)F", "OVERLAP_F_B must follow its brackets"));
  EXPECT_EQ(again("(0F0;1UNSHARD)OVERLAP_F_B"), refusal("(0F0;1UNSHARD)OVERLAP_F_B", "UNSHARD computes nothing"));
  EXPECT_EQ(again("()OVERLAP_F_B"), refusal("", "it does not begin with a stage"));
  EXPECT_EQ(again("1" + std::string(5000, 'x')),
            refusal("1" + std::string(59, 'x') + "...", "\"" + std::string(60, 'x') + "...\" is not an action type"));
  const std::string many = "(0F0;0F1;0F2;0F3;0F4;0F5;0F6;0F7;0F8;0F9;0F10;0F11;0F12;0F13;0F14;0F15;0F16)OVERLAP_F_B";
  EXPECT_EQ(again(many), refusal(many.substr(0, 60) + "...", "too many actions overlap"));
}

TEST(ActionText, TablesMarkAStep) {
  const PipelineOrder order = {{*parse_action("0F0"), *parse_action("0B0")},
                               {{}, *parse_action("1F0"), *parse_action("1B0")}};
  EXPECT_EQ(order_table(order, 1),
            "        Rank 0 Rank 1\n"
            "Step 0: 0F0          \n"
            "Step 1: 0B0    1F0    <-- ERROR HERE\n"
            "Step 2:        1B0   \n");
}

// One rank's list may be long, and a thousand others empty.
TEST(ActionText, TablesEndSomewhere) {
  PipelineOrder order(kMostRanks);
  order[0] = ActionList(1000, *parse_action("0F0"));
  const std::string table = order_table(order);
  EXPECT_LT(table.size(), size_t{4} << 20);
  EXPECT_TRUE(table.ends_with("\n... and 744 more steps\n")) << table.substr(table.size() - 100);
}

}  // namespace
}  // namespace cohort::pipeline
