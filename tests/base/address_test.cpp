#include "cohort/base/net/address.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "cohort/base/system/env.h"

namespace cohort::base {
namespace {

TEST(IpFamily, TheVariableIsFourOrSix) {
  set_env("COHORT_IP_FAMILY", "4");
  EXPECT_EQ(forced_ip_family().value(), IpFamily::kV4);
  set_env("COHORT_IP_FAMILY", "6");
  EXPECT_EQ(forced_ip_family().value(), IpFamily::kV6);
  set_env("COHORT_IP_FAMILY", "5");
  EXPECT_EQ(forced_ip_family().error().message(), "environment variable COHORT_IP_FAMILY=\"5\" must be 4 or 6");
  set_env("COHORT_IP_FAMILY", "");
  EXPECT_EQ(forced_ip_family().value(), IpFamily::kAny);
  unset_env("COHORT_IP_FAMILY");
  EXPECT_EQ(forced_ip_family().value(), IpFamily::kAny);
}

TEST(IpFamily, NumbersAreTheSockets) {
  EXPECT_EQ(socket_family(IpFamily::kV4), AF_INET);
  EXPECT_EQ(socket_family(IpFamily::kV6), AF_INET6);
  EXPECT_EQ(socket_family(IpFamily::kAny), AF_UNSPEC);
}

TEST(Address, FamilyAndReach) {
  EXPECT_TRUE(is_of_family("10.0.0.1", IpFamily::kV4));
  EXPECT_FALSE(is_of_family("10.0.0.1", IpFamily::kV6));
  EXPECT_TRUE(is_of_family("fd00::1", IpFamily::kAny));
  EXPECT_TRUE(is_loopback("127.0.1.1"));
  EXPECT_TRUE(is_loopback("::ffff:127.0.0.1"));
  EXPECT_FALSE(is_loopback("::2"));
  EXPECT_TRUE(is_link_local("fe80::1%eth0"));
  EXPECT_FALSE(is_link_local("fd00::1"));
  EXPECT_EQ(in_brackets("fd00::1"), "[fd00::1]");
  EXPECT_EQ(in_brackets("node0"), "node0");
  EXPECT_EQ(host_and_port("fd00::1", 29500), "[fd00::1]:29500");
  EXPECT_EQ(host_and_port("node0", 29500), "node0:29500");
}

TEST(Address, ResolvesEachAddressOnce) {
  EXPECT_EQ(resolve("127.0.0.1", IpFamily::kAny).value(), std::vector<std::string>{"127.0.0.1"});
  EXPECT_EQ(resolve("::1", IpFamily::kV6).value(), std::vector<std::string>{"::1"});
  EXPECT_TRUE(lacks_family("127.0.0.1", IpFamily::kV6));
  EXPECT_FALSE(lacks_family("127.0.0.1", IpFamily::kV4));
}

TEST(Address, NameThatDoesNotResolveMessage) {
  EXPECT_EQ(resolve("no-such-host.invalid", IpFamily::kAny).error().describe(),
            "\"no-such-host.invalid\" does not resolve to an address: Name or service not known");
  EXPECT_EQ(resolve("127.0.0.1", IpFamily::kV6).error().describe(),
            "\"127.0.0.1\" does not resolve to an IPv6 address: Address family for hostname not supported");
}

}  // namespace
}  // namespace cohort::base
