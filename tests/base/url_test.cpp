#include "cohort/base/net/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::base {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(Url, HasItsPieces) {
  const Url url = parse_url("tcp://10.0.0.1:23456/a/b?rank=0&rank=1&world_size=3");
  EXPECT_EQ(url.scheme, "tcp");
  EXPECT_EQ(url.place.host, "10.0.0.1");
  EXPECT_EQ(url.place.port, "23456");
  EXPECT_EQ(url.path, "/a/b");
  EXPECT_THAT(url.parameters, ElementsAre(Pair("rank", "0"), Pair("rank", "1"), Pair("world_size", "3")));
}

TEST(Url, PiecesMayBeMissing) {
  const Url file = parse_url("file:///shared/store%20b");
  EXPECT_EQ(file.place.host, "");
  EXPECT_EQ(file.place.port, std::nullopt);
  EXPECT_EQ(file.path, "/shared/store%20b");
  EXPECT_EQ(parse_url("env://").scheme, "env");
  const Url bare = parse_url("node0:80");
  EXPECT_EQ(bare.scheme, "");
  EXPECT_EQ(bare.place.host, "node0");
  EXPECT_EQ(bare.place.port, "80");
  EXPECT_EQ(parse_url("").place.host, "");
}

TEST(Url, ASchemeStandsAtTheBeginning) {
  const Url url = parse_url("/handler/go?to=http://node0/x");
  EXPECT_EQ(url.scheme, "");
  EXPECT_EQ(url.path, "/handler/go");
  EXPECT_THAT(url.parameters, ElementsAre(Pair("to", "http://node0/x")));
  EXPECT_EQ(parse_url("http://node0/a://b").path, "/a://b");
}

TEST(Url, HostsAndPorts) {
  struct Case {
    const char* text;
    const char* host;
    std::optional<std::string> port;
  };
  for (const auto& [text, host, port] :
       {Case{"node0", "node0", {}}, Case{"node0:", "node0", ""}, Case{"node0:http", "node0", "http"},
        Case{":80", "", "80"}, Case{"[fd00::1]:7", "fd00::1", "7"}, Case{"[fd00::1]", "fd00::1", {}},
        Case{"fd00::1", "fd00::1", {}}, Case{"[]", "[]", {}}, Case{"", "", {}}}) {
    const HostAndPort place = split_host_and_port(text);
    EXPECT_EQ(place.host, host) << text;
    EXPECT_EQ(place.port, port) << text;
  }
}

TEST(Url, QueriesAreDecoded) {
  EXPECT_THAT(parse_query("y=a%20b+c%zz&z&&=%4&x=1=2"),
              testing::UnorderedElementsAre(Pair("y", "a b c%zz"), Pair("z", ""), Pair("", "%4"), Pair("x", "1=2")));
  EXPECT_THAT(parse_query(""), IsEmpty());
}

}  // namespace
}  // namespace cohort::base
