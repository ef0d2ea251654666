#include "cohort/job/network.h"

#include <gtest/gtest.h>

#include "cohort/job/gloo_key.h"

namespace cohort::job {
namespace {

using base::Interface;
using base::IpFamily;

const std::vector<Interface> kInterfaces{{"lo", true, true, {"127.0.0.1", "::1"}},
                                         {"eth0", true, false, {"10.0.0.1", "fd00::1", "fe80::1%eth0"}},
                                         {"eth1", false, false, {"10.0.1.1"}},
                                         {"eth2", true, false, {}},
                                         {"ib0", true, false, {"fd01::1"}}};
const std::string kListed =
    "\n  hint: this host's interfaces: lo (127.0.0.1, ::1), eth0 (10.0.0.1, fd00::1, fe80::1%eth0), eth1 (down), eth2 "
    "(no "
    "address), ib0 (fd01::1)";

std::string gloo(const std::string& names, IpFamily family = IpFamily::kAny,
                 const std::vector<std::string>& host_addresses = {}) {
  const auto chosen = choose_gloo_addresses(names, family, kInterfaces, host_addresses);
  if (!chosen) return chosen.error().describe();
  std::string text;
  for (const auto& address : *chosen) text += (text.empty() ? "" : " ") + address;
  return text;
}

TEST(Network, GlooListensOnTheInterfacesNamed) {
  EXPECT_EQ(gloo("eth0"), "10.0.0.1");
  EXPECT_EQ(gloo("ib0,lo"), "fd01::1 127.0.0.1");
  EXPECT_EQ(gloo("eth0", IpFamily::kV6), "fd00::1");
}

TEST(Network, GlooInterfaceThatCannotServeMessage) {
  EXPECT_EQ(gloo("eth7"), "GLOO_SOCKET_IFNAME: interface \"eth7\" does not exist" + kListed);
  EXPECT_EQ(gloo("eth1"), "GLOO_SOCKET_IFNAME: interface \"eth1\" is down" + kListed);
  EXPECT_EQ(gloo("eth0,eth2"), "GLOO_SOCKET_IFNAME: interface \"eth2\" has no address" + kListed);
  EXPECT_EQ(gloo("eth0,"), "GLOO_SOCKET_IFNAME: interface \"\" does not exist" + kListed);
  EXPECT_EQ(gloo("ib0", IpFamily::kV4),
            "GLOO_SOCKET_IFNAME: interface \"ib0\" has no IPv4 address (COHORT_IP_FAMILY=4)" + kListed);
}

TEST(Network, GlooListensWhereTheHostNameLeads) {
  EXPECT_EQ(gloo("", IpFamily::kAny, {"192.0.2.9", "10.0.0.1"}), "10.0.0.1");
  EXPECT_EQ(gloo("", IpFamily::kAny, {"127.0.1.1"}), "127.0.1.1");
  EXPECT_EQ(gloo("", IpFamily::kAny, {"192.0.2.9"}), "127.0.0.1");
  EXPECT_EQ(gloo("", IpFamily::kAny), "127.0.0.1");
  EXPECT_EQ(gloo("", IpFamily::kV6, {"10.0.0.1"}), "fd00::1");
  EXPECT_EQ(gloo("", IpFamily::kV4, {"fd00::1", "10.0.0.1"}), "10.0.0.1");
}

TEST(Network, ForcedFamilyThatTheHostLacksMessage) {
  const auto chosen = choose_gloo_addresses("", IpFamily::kV6, {{"lo", true, true, {"127.0.0.1"}}}, {});
  ASSERT_FALSE(chosen);
  EXPECT_EQ(chosen.error().describe(),
            "COHORT_IP_FAMILY=6 asks for an IPv6 address, and this host has none\n"
            "  hint: this host's interfaces: lo (127.0.0.1)");
}

std::string nccl(const std::string& value) {
  const auto checked = check_nccl_interface(value, kInterfaces);
  return checked ? "fits" : checked.error().describe();
}

TEST(Network, NcclInterfaceNamesArePrefixesUnlessExact) {
  EXPECT_EQ(nccl(""), "fits");
  EXPECT_EQ(nccl("eth"), "fits");
  EXPECT_EQ(nccl("=eth0"), "fits");
  EXPECT_EQ(nccl("bond,ib"), "fits");
  EXPECT_EQ(nccl("^lo,eth"), "fits");
  EXPECT_EQ(nccl("^=lo"), "fits");
}

TEST(Network, NcclInterfaceThatCannotServeMessage) {
  EXPECT_EQ(nccl("=eth"), "NCCL_SOCKET_IFNAME=\"=eth\" leaves no interface of this host" + kListed);
  EXPECT_EQ(nccl("ens"), "NCCL_SOCKET_IFNAME=\"ens\" leaves no interface of this host" + kListed);
  EXPECT_EQ(nccl("eth1"),
            "NCCL_SOCKET_IFNAME=\"eth1\" leaves only interfaces that are down or have no address" + kListed);
  EXPECT_EQ(nccl("^lo,eth0,ib"),
            "NCCL_SOCKET_IFNAME=\"^lo,eth0,ib\" leaves only interfaces that are down or have no address" + kListed);
}

TEST(GlooKey, ReadsNothingFromOtherBytes) {
  EXPECT_FALSE(decode_gloo_entry({}));
  EXPECT_FALSE(decode_gloo_entry({1, 2, 3}));
  EXPECT_FALSE(decode_gloo_entry({255, 255, 255, 255, 255, 255, 255, 255, 1}));
  EXPECT_FALSE(decode_gloo_entry(std::vector<uint8_t>(24, 0)));
}

}  // namespace
}  // namespace cohort::job
