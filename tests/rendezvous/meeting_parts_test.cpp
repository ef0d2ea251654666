#include "cohort/rendezvous/meeting_parts.h"

#include <gtest/gtest.h>

namespace cohort::rendezvous {
namespace {

using namespace std::chrono_literals;
using Due = RoundWait::Due;

const Clock::time_point kBegin{1000s};

RoundRecord record_of(int number) {
  RoundRecord record;
  record.number = number;
  return record;
}

TEST(OwnRound, RunsFromItsBeginToItsEnd) {
  OwnRound round;
  EXPECT_EQ(round.record(), nullptr);
  EXPECT_EQ(round.number(), -1);
  EXPECT_FALSE(round.is_running());
  round.begin(record_of(4), 2);
  EXPECT_EQ(round.record()->number, 4);
  EXPECT_EQ(round.rank(), 2);
  EXPECT_TRUE(round.is_running() && round.is_running(4));
  EXPECT_FALSE(round.is_running(3));
  EXPECT_FALSE(round.end()) << "nobody was told";
  EXPECT_FALSE(round.is_running() || round.is_running(4));
  EXPECT_EQ(round.number(), 4);
}

TEST(OwnRound, TheNextOneIsNotToldOfYet) {
  OwnRound round;
  round.begin(record_of(0), 0);
  round.note_told();
  EXPECT_TRUE(round.end());
  round.begin(record_of(1), 0);
  EXPECT_TRUE(round.is_running(1));
  EXPECT_FALSE(round.end());
}

TEST(RoundWait, ExplainsOnceAndEndsAtTheDeadline) {
  RoundWait wait(60s, 10s, kBegin);
  EXPECT_EQ(wait.look(kBegin + 9s), Due::kNothing);
  EXPECT_EQ(wait.look(kBegin + 10s), Due::kExplanation);
  EXPECT_EQ(wait.look(kBegin + 11s), Due::kNothing);
  EXPECT_FALSE(wait.is_late(kBegin + 59s));
  EXPECT_EQ(wait.left(kBegin + 59s), 1s);
  EXPECT_EQ(wait.look(kBegin + 60s), Due::kEnd);
  wait.begin(kBegin + 60s);
  EXPECT_EQ(wait.look(kBegin + 69s), Due::kNothing);
  EXPECT_EQ(wait.look(kBegin + 70s), Due::kExplanation);
}

TEST(RoundWait, ASpareWaitsWithoutDeadlineUntilARoundIsOver) {
  RoundWait wait(60s, 10s, kBegin);
  wait.end();
  EXPECT_EQ(wait.look(kBegin + 1000s), Due::kNothing);
  EXPECT_EQ(wait.until_due(kBegin + 1000s, 5s), 5s);
  wait.go_on(kBegin + 1000s);
  EXPECT_EQ(wait.look(kBegin + 1001s), Due::kExplanation) << "it has been silent for long";
  EXPECT_EQ(wait.look(kBegin + 1059s), Due::kNothing);
  wait.go_on(kBegin + 1059s);
  EXPECT_EQ(wait.look(kBegin + 1059s), Due::kExplanation) << "of another round";
  EXPECT_EQ(wait.look(kBegin + 1060s), Due::kEnd) << "the deadline stays where it was";
}

TEST(RoundWait, SleepsUntilSomethingIsDue) {
  RoundWait wait(60s, 10s, kBegin);
  EXPECT_EQ(wait.until_due(kBegin, 5s), 5s);
  EXPECT_EQ(wait.until_due(kBegin + 8s, 5s), 2s);
  EXPECT_EQ(wait.look(kBegin + 10s), Due::kExplanation);
  EXPECT_EQ(wait.until_due(kBegin + 10s, 5s), 5s);
  EXPECT_EQ(wait.until_due(kBegin + 57s, 5s), 3s);
  EXPECT_EQ(wait.until_due(kBegin + 61s, 5s), 1ms);
}

TEST(StoreAbsence, FailuresThatFollowEachOtherAreOne) {
  StoreAbsence absence(70s);
  EXPECT_TRUE(absence.note(kBegin));
  EXPECT_FALSE(absence.note(kBegin + 70s));
  EXPECT_FALSE(absence.note(kBegin + 140s));
  EXPECT_EQ(absence.age(kBegin + 150s), 150s);
  EXPECT_TRUE(absence.note(kBegin + 211s));
  EXPECT_EQ(absence.age(kBegin + 215s), 4s);
}

TEST(LeaderPulse, StandsStillForTooLong) {
  LeaderPulse pulse(10s);
  const auto is_silent = [&](NodeId leader, const std::string& beat, std::chrono::seconds at) {
    pulse.note_own(kBegin + at);
    return pulse.is_silent(leader, beat, kBegin + at);
  };
  EXPECT_FALSE(is_silent(7, "1", 0s));
  EXPECT_FALSE(is_silent(7, "1", 5s));
  EXPECT_TRUE(is_silent(7, "1", 10s));
  EXPECT_FALSE(is_silent(7, "2", 12s));
  EXPECT_FALSE(is_silent(8, "2", 16s));
  EXPECT_FALSE(is_silent(8, "2", 20s));
  EXPECT_FALSE(is_silent(8, "2", 23s)) << "another leader, since 16 s";
  EXPECT_FALSE(is_silent(8, "2", 40s)) << "this node was away itself";
  EXPECT_FALSE(is_silent(8, "2", 45s));
  EXPECT_TRUE(is_silent(8, "2", 50s));
}

}  // namespace
}  // namespace cohort::rendezvous
