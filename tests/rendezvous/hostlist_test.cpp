#include "cohort/rendezvous/environment/hostlist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::rendezvous {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

TEST(Hostlist, NamesAndRangesInAnyOrder) {
  EXPECT_THAT(*expand_hostlist("gpu5"), ElementsAre("gpu5"));
  EXPECT_THAT(*expand_hostlist("node[01-03,7],gpu5"), ElementsAre("node01", "node02", "node03", "node7", "gpu5"));
  EXPECT_THAT(*expand_hostlist("node-a,node-b.example"), ElementsAre("node-a", "node-b.example"));
  EXPECT_THAT(*expand_hostlist("n[9-11]"), ElementsAre("n9", "n10", "n11"));
  EXPECT_THAT(*expand_hostlist("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
}

TEST(Hostlist, SeveralBracketsAndASuffix) {
  EXPECT_THAT(*expand_hostlist("r[1-2]n[1-2]-ib"), ElementsAre("r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"));
  EXPECT_THAT(*expand_hostlist("r[1,3]n[5-6],x"), ElementsAre("r1n5", "r1n6", "r3n5", "r3n6", "x"));
}

TEST(Hostlist, ManyNamesWithinTheLimit) {
  EXPECT_THAT(*expand_hostlist("n[1-65536]"), SizeIs(65'536));
  EXPECT_THAT(*expand_hostlist("r[1-256]n[1-256]"), SizeIs(65'536));
}

TEST(Hostlist, MalformedMessage) {
  const auto message = [](const char* text) { return expand_hostlist(text).error().message(); };
  EXPECT_EQ(message("n[1-3"), "\"n[1-3\" is not a list of hosts: its brackets do not match");
  EXPECT_EQ(message("n1]"), "\"n1]\" is not a list of hosts: its brackets do not match");
  EXPECT_EQ(message("n[[1]]"), "\"n[[1]]\" is not a list of hosts: its brackets do not match");
  EXPECT_EQ(message("n[a-b]"), "\"n[a-b]\" is not a list of hosts: \"a-b\" is not a range of numbers");
  EXPECT_EQ(message("n[]"), "\"n[]\" is not a list of hosts: \"\" is not a range of numbers");
  EXPECT_EQ(message("n[1-]"), "\"n[1-]\" is not a list of hosts: \"1-\" is not a range of numbers");
  EXPECT_EQ(message("n[99999999999999999999]"),
            "\"n[99999999999999999999]\" is not a list of hosts: \"99999999999999999999\" is not a range of numbers");
  EXPECT_EQ(message("n[3-1]"), "\"n[3-1]\" is not a list of hosts: the range \"3-1\" runs backwards");
  EXPECT_EQ(message("a,,b"), "\"a,,b\" is not a list of hosts: a name is empty");
  EXPECT_EQ(message(""), "\"\" is not a list of hosts: a name is empty");
  EXPECT_EQ(message("n[1-65537]"), "\"n[1-65537]\" is not a list of hosts: it has more than 65536 names");
  EXPECT_EQ(message("a[0-999]b[0-999]"), "\"a[0-999]b[0-999]\" is not a list of hosts: it has more than 65536 names");
}

// What would take gigabytes, each from a text of some hundred bytes.
TEST(Hostlist, WhatWouldGrowIsRefusedBeforeItDoesMessage) {
  std::string ranges = "n[0-65535";
  for (int i = 0; i < 20'000; ++i) ranges += ",0-65535";
  EXPECT_EQ(expand_hostlist(ranges + "]").error().message(),
            "\"" + ranges + "]\" is not a list of hosts: it has more than 65536 names");
  const auto long_name = std::string(100'000, 'n') + "[0-65535]";
  EXPECT_EQ(expand_hostlist(long_name).error().message(),
            "\"" + long_name + "\" is not a list of hosts: a name has more than 255 letters");
  EXPECT_THAT(*expand_hostlist(std::string(254, 'n') + "[1]"), ElementsAre(std::string(254, 'n') + "1"));
}

TEST(Hostlist, Counts) {
  EXPECT_THAT(*expand_counts("4"), ElementsAre(4));
  EXPECT_THAT(*expand_counts("2(x3),1"), ElementsAre(2, 2, 2, 1));
  for (const char* text : {"", "x", "2(x", "2(x0)", "2(x3", "2(x99999999)", "-1", "1,"}) {
    ASSERT_FALSE(expand_counts(text).ok()) << text;
    EXPECT_EQ(expand_counts(text).error().message(),
              "\"" + std::string(text) + "\" is not a list of counts such as \"2(x3),1\"");
  }
}

}  // namespace
}  // namespace cohort::rendezvous
