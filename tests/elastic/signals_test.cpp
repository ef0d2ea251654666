#include "cohort/elastic/events/signals.h"

#include <gtest/gtest.h>

namespace cohort::elastic {
namespace {

TEST(Signals, ParsesNames) {
  EXPECT_EQ(*parse_signals("SIGTERM, SIGINT"), (std::vector<int>{SIGTERM, SIGINT}));
  EXPECT_TRUE(parse_signals("")->empty());
}

TEST(Signals, ParseMessage) {
  EXPECT_EQ(parse_signals("SIGTEM").error().describe(),
            "--signals-to-handle: \"SIGTEM\" is not a signal (did you mean \"SIGTERM\"?)");
  EXPECT_EQ(parse_signals("SIGKILL").error().describe(), "--signals-to-handle: no process can handle SIGKILL");
}

TEST(Signals, SourceHandsOutWhatCameAndRestoresTheMask) {
  sigset_t before;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    SignalSource source = SignalSource::create({SIGUSR1}).value();
    EXPECT_EQ(source.next(), std::nullopt);
    ::raise(SIGUSR1);
    EXPECT_EQ(source.next(), SIGUSR1);
    EXPECT_EQ(source.next(), std::nullopt);
  }
  sigset_t after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&after, SIGUSR1), sigismember(&before, SIGUSR1));
}

TEST(Signals, DropsWhatStillWaitsAtItsEnd) {
  {
    SignalSource source = SignalSource::create({SIGUSR1}).value();
    ::raise(SIGUSR1);
  }
  SUCCEED() << "the default action would have ended this process";
}

TEST(Signals, IgnoredHangupStaysIgnored) {
  const auto before = ::signal(SIGHUP, SIG_IGN);
  SignalSource source = SignalSource::create({SIGHUP, SIGUSR1}).value();
  ::raise(SIGHUP);
  ::raise(SIGUSR1);
  EXPECT_EQ(source.next(), SIGUSR1);
  EXPECT_EQ(source.next(), std::nullopt);
  ::signal(SIGHUP, before);
}

}  // namespace
}  // namespace cohort::elastic
