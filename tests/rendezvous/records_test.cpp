#include "cohort/rendezvous/rounds/records.h"

#include <gtest/gtest.h>

namespace cohort::rendezvous {
namespace {

Member member() {
  Member member;
  member.id = 7;
  member.node = {"node1", "10.0.0.2", 4711, 8, "trainer", "c0ffee"};
  member.sort_name = "node1";
  member.store_address = "10.0.0.1";
  member.fixed_rank = 3;
  member.max_restarts = 2;
  return member;
}

TEST(Records, ANoticeComesBackAsItWas) {
  const auto text = to_text(Notice{Notice::Kind::kCome, -1, 4,
                                   "be\xff"
                                   "cause",
                                   member()});
  const auto notice = parse_notice(text).value();
  EXPECT_EQ(notice.kind, Notice::Kind::kCome);
  EXPECT_EQ(notice.round, 4);
  EXPECT_EQ(notice.member.node.host, "node1");
  EXPECT_EQ(notice.member.node.pid, 4711);
  EXPECT_EQ(notice.member.node.local_world_size, 8);
  EXPECT_EQ(notice.member.node.role, "trainer");
  EXPECT_EQ(notice.member.node.public_key, "c0ffee");
  EXPECT_EQ(notice.member.fixed_rank, 3);
  EXPECT_EQ(to_text(notice), text);
}

TEST(Records, TabsAndLinesInANodesTextsAreSpaces) {
  auto odd = member();
  odd.node.role = "a\tb\nc";
  EXPECT_EQ(parse_notice(to_text(Notice{Notice::Kind::kCome, -1, 0, "", odd})).value().member.node.role, "a b c");
}

TEST(Records, NewsComesBackAsItWas) {
  const News all[] = {LeadRecord{4, 2}, RoundRecord{3, 1, 5, {member(), member()}},
                      OverRecord{2, RoundOver::Reason::kNodeLost, "node1 gave no sign of life", 7, false}};
  for (const auto& news : all) {
    const auto text = to_text(news);
    const auto read = parse_news(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(read->index(), news.index());
    EXPECT_EQ(to_text(*read), text);
  }
}

TEST(Records, RubbishMessage) {
  for (const auto* text : {"rubbish", "{}", "[1,2]", R"({"news":"party"})", R"({"news":"round","number":"x"})",
                           R"({"news":"round","number":0,"restart_count":0,"max_restarts":0,"members":"a\tb"})"}) {
    const auto news = parse_news(text);
    ASSERT_FALSE(news) << text;
    EXPECT_EQ(news.error().message(),
              std::string("the rendezvous' store has an entry that this program does not understand: ") +
                  std::string(text).substr(0, 100));
    EXPECT_EQ(news.error().hint(),
              "run the same version of Cohort on every node, and give every job its own --rdzv-id");
  }
}

}  // namespace
}  // namespace cohort::rendezvous
