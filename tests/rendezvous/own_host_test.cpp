#include "cohort/rendezvous/environment/own_host.h"

#include <gtest/gtest.h>

namespace cohort::rendezvous {
namespace {

const OwnHost kOwn{{"node1", "node1.cluster"}, {"127.0.0.1", "::1", "10.0.0.2", "fd00::2"}};

TEST(FindPlace, LoopbackIsEachHostsOwn) {
  EXPECT_EQ(find_place("localhost", {"127.0.0.1"}, kOwn), Place::kLoopback);
  EXPECT_EQ(find_place("127.0.0.1", {"127.0.0.1"}, kOwn), Place::kLoopback);
  EXPECT_EQ(find_place("127.3.2.1", {"127.3.2.1"}, kOwn), Place::kLoopback);
  EXPECT_EQ(find_place("::1", {"::1"}, kOwn), Place::kLoopback);
}

TEST(FindPlace, NamesAndAddressesOfThisHost) {
  EXPECT_EQ(find_place("node1", {"127.0.1.1"}, kOwn), Place::kHere);
  EXPECT_EQ(find_place("node1.cluster", {}, kOwn), Place::kHere);
  EXPECT_EQ(find_place("10.0.0.2", {"10.0.0.2"}, kOwn), Place::kHere);
  EXPECT_EQ(find_place("head", {"fd00::2"}, kOwn), Place::kHere);
}

TEST(FindPlace, OtherHosts) {
  EXPECT_EQ(find_place("node0", {"10.0.0.1"}, kOwn), Place::kElsewhere);
  EXPECT_EQ(find_place("node0", {}, kOwn), Place::kElsewhere);
}

TEST(FindPlace, AForeignNameThatMeansLoopbackHere) {
  EXPECT_EQ(find_place("node0", {"127.0.1.1"}, kOwn), Place::kForeignName);
}

}  // namespace
}  // namespace cohort::rendezvous
