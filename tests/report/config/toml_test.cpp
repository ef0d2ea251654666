#include "cohort/report/config/toml.h"

#include <gtest/gtest.h>

#include <string>

namespace cohort::report {
namespace {

// "name = value @line", one after the other.
std::string parsed(const std::string& text) {
  auto entries = parse_toml("run.toml", text);
  if (!entries) return entries.error().describe();
  std::string all;
  for (const TomlEntry& entry : *entries) {
    all += (all.empty() ? "" : "; ") + entry.name + " = " + toml_text(entry.value) + " @" + std::to_string(entry.line);
  }
  return all;
}

std::string value(const std::string& text) { return parsed("a = " + text + "\n"); }

TEST(Toml, ReadsTablesAndKeys) {
  EXPECT_EQ(parsed("# options\nepochs = 5 # five\r\n\n[ optimizer ]\n lr = 0.1\nbetas.first = 0.9\n[\"data "
                   "set\".cifar]\n'path' = \"x\"\n"),
            "epochs = 5 @2; optimizer.lr = 0.1 @5; optimizer.betas.first = 0.9 @6; data set.cifar.path = \"x\" @8");
  EXPECT_EQ(parsed(""), "");
  EXPECT_EQ(parsed("\xef\xbb\xbf"
                   "a=1"),
            "a = 1 @1");
}

TEST(Toml, IsUtf8) {
  EXPECT_EQ(value("\"caf\xc3\xa9\""), "a = \"caf\xc3\xa9\" @1");
  EXPECT_EQ(parsed("a = 1\n[\"D\xebta set\"]\nb = 2"),
            "\"run.toml\", line 2: a byte that is no UTF-8, which every TOML file is written in");
}

TEST(Toml, AKeyComesOnce) {
  EXPECT_EQ(parsed("batch-size = 1\n\nbatch_size = 2"),
            "\"run.toml\", line 3: batch_size comes twice; it was in line 1 before");
  std::string many;
  for (int i = 0; i < 60000; ++i) many += "k" + std::to_string(i) + " = 1\n";
  EXPECT_EQ(parse_toml("run.toml", many)->size(), 60000U);
}

TEST(Toml, ReadsNumbers) {
  const std::pair<const char*, const char*> numbers[] = {
      {"+5", "5"},
      {"-17", "-17"},
      {"1_000", "1000"},
      {"0xff", "255"},
      {"0o17", "15"},
      {"0b101", "5"},
      {"5.0", "5.0"},
      {"-0.25", "-0.25"},
      {"1e3", "1000.0"},
      {"1e-05", "1e-05"},
      {"6.5E+2", "650.0"},
      {"inf", "inf"},
      {"-inf", "-inf"},
      {"nan", "nan"},
      {"0", "0"},
      {"0.5e1_0", "5000000000.0"},
      {"true", "true"},
      {"false", "false"},
      {"9223372036854775807", "9223372036854775807"},
  };
  for (const auto& [text, number] : numbers) EXPECT_EQ(value(text), std::string("a = ") + number + " @1") << text;
  for (const char* text : {"05", "1__0", "_1", "1_", "1.", ".5", "1.e3", "0x", "0x-1", "1e", "9223372036854775808",
                           "yes", "1979-05-27", "+-1", "1e999"}) {
    EXPECT_EQ(value(text),
              "\"run.toml\", line 1: expected a value, such as 5, 0.1, true, \"text\" or [1, 2], but found \"" +
                  std::string(text) + "\"");
  }
}

TEST(Toml, ReadsTexts) {
  const auto text = [](const std::string& toml) {
    auto entries = parse_toml("run.toml", "a = " + toml);
    return entries ? std::get<std::string>(std::get<TomlScalar>(entries->at(0).value)) : entries.error().describe();
  };
  EXPECT_EQ(text(R"("a\tb\n\"\\\u00e9\U0001F600")"), "a\tb\n\"\\\xc3\xa9\xf0\x9f\x98\x80");
  EXPECT_EQ(text(R"('C:\new # "x"')"), "C:\\new # \"x\"");
  EXPECT_EQ(text("\"\"\"\none\ntwo \\\n   three\"\"\""), "one\ntwo three");
  EXPECT_EQ(text("\"\"\"a \"quoted\" end\"\"\"\""), "a \"quoted\" end\"");
  EXPECT_EQ(text("'''\r\na\\n'b'''"), "a\\n'b");
  EXPECT_EQ(text("'''a'''''"), "a''");
  EXPECT_EQ(text("'''a''''''"), "\"run.toml\", line 1: expected the end of the line, but found \"'\"");
  EXPECT_EQ(text("\"\""), "");
  EXPECT_EQ(text("\"open"), "\"run.toml\", line 1: a text lacks its closing quote");
  EXPECT_EQ(text("\"open\n\""), "\"run.toml\", line 1: a text lacks its closing quote");
  EXPECT_EQ(text("'''open\n"), "\"run.toml\", line 1: a text lacks its closing quote");
  EXPECT_EQ(text(R"("\q")"),
            "\"run.toml\", line 1: an unknown letter follows a backslash in a text; two backslashes stand for one");
  EXPECT_EQ(text(R"("\ud800")"), "\"run.toml\", line 1: \"\\ud800\" is no letter");
  EXPECT_EQ(text(R"("\u12)"), "\"run.toml\", line 1: \"\\u12\" is no letter");
}

TEST(Toml, ReadsLists) {
  EXPECT_EQ(parsed("a = [1, 2,\n  3, # three\n]\nb = []\nc = ['x', 0.5, true]"),
            "a = [1, 2, 3] @1; b = [] @4; c = [\"x\", 0.5, true] @5");
  EXPECT_EQ(value("[1 2]"), "\"run.toml\", line 1: expected \",\" or \"]\" in a list");
  EXPECT_EQ(value("[[1]]"), "\"run.toml\", line 1: a list holds texts and numbers, no lists or tables");
  EXPECT_EQ(value("[1,\n"),
            "\"run.toml\", line 3: expected a value, such as 5, 0.1, true, \"text\" or [1, 2], but found \"\"");
}

TEST(Toml, SaysWhereItIsWrong) {
  EXPECT_EQ(parsed("a = 1\n\nb 2\n"), "\"run.toml\", line 3: expected \"=\" after a key");
  EXPECT_EQ(parsed("a = 1\na = 2\n"), "\"run.toml\", line 2: a comes twice; it was in line 1 before");
  EXPECT_EQ(parsed("[t]\nx=1\n[u]\n[t]\nx=2"), "\"run.toml\", line 5: t.x comes twice; it was in line 2 before");
  EXPECT_EQ(parsed("a = 1 b = 2"), "\"run.toml\", line 1: expected the end of the line, but found \"b = 2\"");
  EXPECT_EQ(parsed("[a"), "\"run.toml\", line 1: expected \"]\" after the name of a table");
  EXPECT_EQ(parsed("= 1"), "\"run.toml\", line 1: expected a key, such as epochs or \"epochs\"");
  EXPECT_EQ(parsed("a. = 1"), "\"run.toml\", line 1: expected a key, such as epochs or \"epochs\"");
  EXPECT_EQ(parsed("[[a]]"), "\"run.toml\", line 1: a list of tables ([[...]]) is no option");
  EXPECT_EQ(value("{x = 1}"),
            "\"run.toml\", line 1: an inline table ({...}) is no option; write its keys below a line [name]");
  EXPECT_EQ(parsed(std::string(2 << 20, '#')), "\"run.toml\" has 2.0 MiB, which no file of options has");
}

}  // namespace
}  // namespace cohort::report
