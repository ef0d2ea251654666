#include "cohort/elastic/processes/session.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "cohort/base/process/process.h"

namespace cohort::elastic {
namespace {

TEST(Session, ParsesStatWithStrangeName) {
  SessionMember member;
  EXPECT_TRUE(parse_process_stat("71 (a ) (name) S 1 70 69 0 -1", member));
  EXPECT_EQ(member.pid, 71);
  EXPECT_EQ(member.session, 69);
  EXPECT_EQ(member.name, "a ) (name");
}

TEST(Session, LeavesOutZombiesAndGarbage) {
  SessionMember member;
  EXPECT_FALSE(parse_process_stat("71 (a) Z 1 70 69 0", member));
  EXPECT_FALSE(parse_process_stat("", member));
  EXPECT_FALSE(parse_process_stat("71 (a)", member));
}

TEST(Session, FindsMembersOfTheSession) {
  base::Process process = base::Process::start({.arguments = {"sh", "-c", "sleep 1000 & echo; wait"},
                                                .standard_output = base::Stream::pipe()})
                              .value();
  char newline;
  ASSERT_EQ(::read(process.standard_output().get(), &newline, 1), 1);
  EXPECT_EQ(living_members({process.pid()}).size(), 2u);
  process.signal_group(SIGKILL);
  process.wait();
  for (const SessionMember& member : living_members({process.pid()})) EXPECT_NE(member.pid, process.pid());
}

}  // namespace
}  // namespace cohort::elastic
