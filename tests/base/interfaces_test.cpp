#include "cohort/base/net/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::base {
namespace {

const std::vector<Interface> kInterfaces{{"lo", true, true, {"127.0.0.1", "::1"}},
                                         {"eth0", true, false, {"10.0.0.1", "fd00::1", "fe80::1%eth0"}},
                                         {"eth1", false, false, {"10.0.1.1"}},
                                         {"eth2", true, false, {}},
                                         {"ib0", true, false, {"fd01::1"}}};

TEST(Interfaces, InWords) {
  EXPECT_EQ(
      describe_interfaces(kInterfaces),
      "lo (127.0.0.1, ::1), eth0 (10.0.0.1, fd00::1, fe80::1%eth0), eth1 (down), eth2 (no address), ib0 (fd01::1)");
  EXPECT_EQ(describe_reachable_interfaces(kInterfaces), "eth0 (10.0.0.1, fd00::1, fe80::1%eth0), ib0 (fd01::1)");
  EXPECT_EQ(describe_reachable_interfaces({}), "none");
}

TEST(Interfaces, OwnOnesHoldLoopback) {
  const auto interfaces = list_interfaces();
  EXPECT_TRUE(is_own_address("127.0.0.1", interfaces)) << describe_interfaces(interfaces);
  EXPECT_TRUE(is_own_address("127.3.2.1", interfaces)) << describe_interfaces(interfaces);
  EXPECT_FALSE(is_own_address("192.0.2.77", interfaces));
  EXPECT_THAT(own_addresses(), testing::Contains("127.0.0.1"));
}

TEST(Interfaces, OwnAddressIsAPreferredOneElseLoopback) {
  EXPECT_EQ(choose_own_address({"192.0.2.9", "10.0.0.1"}, IpFamily::kAny, kInterfaces), "10.0.0.1");
  EXPECT_EQ(choose_own_address({"10.0.0.1"}, IpFamily::kV6, kInterfaces), "::1");
  EXPECT_EQ(choose_own_address({}, IpFamily::kAny, kInterfaces), "127.0.0.1");
  EXPECT_EQ(choose_own_address({}, IpFamily::kV6, {{"lo", true, true, {"127.0.0.1"}}}), "");
}

TEST(Interfaces, TheWayToAnAddressOfThisHostIsReachable) {
  EXPECT_EQ(address_towards("127.0.0.1", 1, IpFamily::kAny), reachable_address(IpFamily::kAny));
}

}  // namespace
}  // namespace cohort::base
