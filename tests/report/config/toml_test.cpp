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
            "\"run.toml\", line 2, column 3: Encountered invalid utf-8 sequence");
}

TEST(Toml, AKeyComesOnce) {
  EXPECT_EQ(parsed("batch-size = 1\n\nbatch_size = 2"),
            "\"run.toml\", line 3, column 1: batch_size comes twice; it was in line 1 before");
  EXPECT_EQ(parsed("'a.b' = 1\n[a]\nb = 2"),
            "\"run.toml\", line 3, column 1: a.b comes twice; it was in line 1 before");
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
      {"9223372036854775807", "9223372036854775807"},
  };
  for (const auto& [text, number] : numbers) {
    EXPECT_EQ(value(text), std::string("a = ") + number + " @1") << text;
    // Words of the command line are read alike.
    const auto flag = parse_toml_number(text);
    ASSERT_TRUE(flag.has_value()) << text;
    EXPECT_EQ(toml_text(*flag), number);
  }
  for (const char* text : {"05", "1__0", "_1", "1_", "1.", ".5", "1.e3", "0x", "0x-1", "1e", "9223372036854775808",
                           "yes", "1979-05-27", "+-1", "1e999"}) {
    EXPECT_TRUE(value(text).starts_with("\"run.toml\", line 1, column ")) << value(text);
    EXPECT_FALSE(parse_toml_number(text).has_value()) << text;
  }
  EXPECT_EQ(value("true"), "a = true @1");
  for (const char* text : {"true", "", "5 # five", "5\nb = 6", "\"5\""}) EXPECT_FALSE(parse_toml_number(text)) << text;
  EXPECT_EQ(value("05"),
            "\"run.toml\", line 1, column 7: Error while parsing decimal integer: leading zeroes are prohibited");
  EXPECT_EQ(value("yes"), "\"run.toml\", line 1, column 5: Error while parsing value: could not determine value type");
  EXPECT_EQ(value("1979-05-27"),
            "\"run.toml\", line 1, column 5: a date or a time is not supported; write it as a text in quotes");
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
  EXPECT_EQ(text("\"\""), "");
  EXPECT_EQ(text("\"open"), "\"run.toml\", line 1, column 10: Error while parsing string: encountered end-of-file");
  EXPECT_EQ(text(R"("\q")"),
            "\"run.toml\", line 1, column 7: Error while parsing string: unknown escape sequence '\\q'");
}

TEST(Toml, WhatIsWrittenIsReadAgain) {
  const std::string text("\x01\"\x7f\n\\\xc3\xa9");
  const auto again = parse_toml("run.toml", "a = " + toml_text(TomlScalar(text)));
  ASSERT_TRUE(again) << again.error().describe();
  EXPECT_EQ(std::get<std::string>(std::get<TomlScalar>(again->at(0).value)), text);
}

TEST(Toml, ReadsLists) {
  EXPECT_EQ(parsed("a = [1, 2,\n  3, # three\n]\nb = []\nc = ['x', 0.5, true]"),
            "a = [1, 2, 3] @1; b = [] @4; c = [\"x\", 0.5, true] @5");
  EXPECT_EQ(value("[1 2]"),
            "\"run.toml\", line 1, column 8: Error while parsing array: expected comma or closing ']', saw '2'");
  EXPECT_EQ(value("[[1]]"), "\"run.toml\", line 1, column 6: a list holds texts and numbers, but not lists or tables");
  EXPECT_EQ(value("[1, {x = 1}]"),
            "\"run.toml\", line 1, column 9: a list holds texts and numbers, but not lists or tables");
}

TEST(Toml, SaysWhereItIsWrong) {
  EXPECT_EQ(parsed("a = 1\n\nb 2\n"),
            "\"run.toml\", line 3, column 3: Error while parsing key-value pair: expected '=', saw '2'");
  EXPECT_EQ(parsed("a = 1\na = 2\n"),
            "\"run.toml\", line 2, column 5: Error while parsing key-value pair: cannot redefine existing integer 'a'");
  EXPECT_EQ(parsed("[t]\nx=1\n[u]\n[t]\nx=2"),
            "\"run.toml\", line 4, column 1: Error while parsing table header: cannot redefine existing table 't'");
  EXPECT_EQ(parsed("a = 1 b = 2"),
            "\"run.toml\", line 1, column 7: Error while parsing key-value pair: expected a comment or whitespace, saw "
            "'b'");
  // toml++ takes these two for impossible.
  EXPECT_EQ(parsed("[=a]]"),
            "\"run.toml\", line 1, column 2: Error while parsing key: expected bare key starting character or string "
            "delimiter, saw '='");
  EXPECT_EQ(parsed("\xef\xbb\xafz = 1"),
            "\"run.toml\", line 1, column 1: Error while parsing root table: expected keys, tables, whitespace or "
            "comments, saw '\?\?\?'");
  EXPECT_EQ(parsed("[[a]]"), "\"run.toml\", line 1, column 1: a list of tables ([[...]]) is not supported");
  EXPECT_EQ(
      value("{x = 1}"),
      "\"run.toml\", line 1, column 1: an inline table ({...}) is not supported; write its keys below a line [name]");
}

// toml++ calls itself for what is nested, and for each part of a key.
TEST(Toml, NestingHasABound) {
  EXPECT_EQ(parsed(std::string(2 << 20, '#')), "\"run.toml\" is too large for a file of options: 2.0 MiB");
  EXPECT_EQ(value(std::string(1 << 19, '[')),
            "\"run.toml\", line 1, column 37: Error while parsing value: exceeded maximum nested value depth of 32 "
            "(TOML_MAX_NESTED_VALUES)");
  std::string key = "k";
  for (int i = 0; i < (1 << 17); ++i) key += ".k";
  const std::string refused = "\"run.toml\", line 2: a key has at most 32 parts with dots between them";
  for (const std::string before :
       {"a = 1", "# '''", "a = '''x''''", R"(a = """""")", "a = 'x'", R"(a = "\"")", R"(a = """\"""")"}) {
    EXPECT_EQ(parsed(before + "\n" + key + " = 1"), refused) << before;
    EXPECT_EQ(parsed(before + "\n[" + key + "]"), refused) << before;
    EXPECT_EQ(parsed(before + "\n\"" + key + "\"." + key + " = 1"), refused) << before;
  }
  const std::string dots(100, '.');
  EXPECT_EQ(value("'" + dots + "' # " + dots), "a = \"" + dots + "\" @1");
}

}  // namespace
}  // namespace cohort::report
