#include "cohort/base/ip_family.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "cohort/base/env.h"

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

}  // namespace
}  // namespace cohort::base
