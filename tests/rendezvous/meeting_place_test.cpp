// Where nodes meet, as far as one node decides it.
#include "cohort/rendezvous/meeting_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "cohort/base/net/port.h"

namespace cohort::rendezvous {
namespace {

class MeetingPlaceTest : public ::testing::Test {
 protected:
  base::Result<std::unique_ptr<MeetingPlace>> open(const std::string& backend, const std::string& conf = "") {
    Flags flags;
    flags.num_nodes = "2";
    flags.backend = backend;
    flags.endpoint = backend == "file" ? "/shared/meet" : where_;
    flags.conf = conf;
    return MeetingPlace::open(parse_settings(flags).value());
  }

  const base::PortReservation port_ = base::reserve_port().value();
  const std::string where_ = "127.0.0.1:" + std::to_string(port_.port);
};

TEST_F(MeetingPlaceTest, EtcdAndFilesAreNotHostedAndKnowNoToken) {
  for (const std::string backend : {"etcd", "etcd-v2", "file"}) {
    const auto place = open(backend, "token_file=/none");
    ASSERT_TRUE(place.ok()) << backend << ": " << place.error().describe();
    EXPECT_FALSE((*place)->is_hosted_here()) << backend;
    EXPECT_EQ((*place)->doubt(), "") << backend;
    EXPECT_EQ((*place)->name(), backend == "file" ? "/shared/meet" : where_);
  }
}

TEST_F(MeetingPlaceTest, OtherBackendsNeedTheTokenFileMessage) {
  for (const std::string backend : {"c10d", "static"}) {
    const auto place = open(backend, "token_file=/none");
    EXPECT_EQ(place.ok() ? "none" : place.error().describe(),
              "cannot open the token file \"/none\": No such file or directory (ENOENT)")
        << backend;
  }
}

// Two nodes of one host: the first one hosts, the second one is its guest, unless it was told to host.
TEST_F(MeetingPlaceTest, WhoComesFirstHostsMessage) {
  const std::string bind = "bind=127.0.0.1";
  const auto first = open("c10d", bind);
  ASSERT_TRUE(first.ok()) << first.error().describe();
  EXPECT_TRUE((*first)->is_hosted_here());
  const auto second = open("c10d", bind);
  ASSERT_TRUE(second.ok()) << second.error().describe();
  EXPECT_FALSE((*second)->is_hosted_here());
  const auto taken = "the rendezvous cannot be hosted at " + where_ +
                     "\n  caused by: the store cannot start\n  caused by: cannot listen on " + where_ +
                     ": Address already in use \\(EADDRINUSE\\); it is held by process " + std::to_string(getpid()) +
                     " \\(.*\\)\n  hint: choose another port, or 0 for a free one";
  for (const auto& told : {open("c10d", bind + ",is_host=1"), open("static", bind)}) {
    EXPECT_THAT(told.ok() ? "none" : told.error().describe(), testing::MatchesRegex(taken));
  }
}

}  // namespace
}  // namespace cohort::rendezvous
