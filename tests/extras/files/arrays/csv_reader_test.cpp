#include "cohort/extras/files/arrays/csv_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace cohort::files {
namespace {

using testing::ElementsAre;
using Records = std::vector<std::vector<std::string>>;

base::Result<Records> parse_csv(std::string_view text, CsvFormat format = {.has_header = false}) {
  auto reader = CsvReader::open(RandomAccessFile::view("a.csv", text), format);
  if (!reader) return reader.error();
  Records records;
  for (;;) {
    auto is_there = reader->next();
    if (!is_there) return is_there.error();
    if (!*is_there) return records;
    auto& record = records.emplace_back();
    for (size_t i = 0; i < reader->column_names().size(); ++i) record.emplace_back(reader->field(i));
  }
}

CsvReader first_record(std::string_view text) {
  auto reader = CsvReader::open(RandomAccessFile::view("a.csv", text)).value();
  EXPECT_TRUE(reader.next().value());
  return reader;
}

TEST(CsvReader, ReadsPlainAndQuotedFields) {
  EXPECT_THAT(parse_csv("a,b\n1,\n").value(), ElementsAre(ElementsAre("a", "b"), ElementsAre("1", "")));
  EXPECT_THAT(parse_csv("\"x, y\",\"say \"\"hi\"\"\"\n\"two\nlines\",\"\"\n").value(),
              ElementsAre(ElementsAre("x, y", "say \"hi\""), ElementsAre("two\nlines", "")));
  EXPECT_THAT(parse_csv("a;'b;c'\n", {.delimiter = ';', .quote = '\'', .has_header = false}).value(),
              ElementsAre(ElementsAre("a", "b;c")));
}

TEST(CsvReader, EndsOfLinesAndEmptyLines) {
  const Records expected = {{"1", "2"}, {"3", "4"}};
  for (const char* text : {"1,2\n3,4\n", "1,2\n3,4", "1,2\r\n3,4\r\n", "1,2\r\n3,4", "\n1,2\n\n\r\n3,4\n\n",
                           "\xef\xbb\xbf"
                           "1,2\n3,4",
                           "\"1\",2\r\n3,\"4\""}) {
    EXPECT_EQ(parse_csv(text).value(), expected) << text;
  }
  EXPECT_THAT(parse_csv("1\n\"\"\n2\n").value(), ElementsAre(ElementsAre("1"), ElementsAre(""), ElementsAre("2")));
}

TEST(CsvReader, RecordsLieAcrossPiecesOfTheFile) {
  std::string text = "n,text\n";
  Records expected;
  for (int i = 0; i < 60'000; ++i) {
    expected.push_back({std::to_string(i), i % 3 == 0 ? "a \"word\"\r\n, " + std::to_string(i) : "plain"});
    text += std::to_string(i) + (i % 3 == 0 ? ",\"a \"\"word\"\"\r\n, " + std::to_string(i) + "\"" : ",plain") + "\r\n";
  }
  ASSERT_GT(text.size(), size_t{1} << 20);
  EXPECT_TRUE(parse_csv(text, {}).value() == expected);
}

TEST(CsvReader, NamesColumns) {
  const auto named = first_record("x,\"the label\"\n1,2\n");
  EXPECT_THAT(named.column_names(), ElementsAre("x", "the label"));
  EXPECT_EQ(named.column("the label").value(), 1);
  const auto numbered = CsvReader::open(RandomAccessFile::view("a.csv", "7,8\n"), {.has_header = false}).value();
  EXPECT_EQ(numbered.column("1").value(), 1);
  EXPECT_EQ(named.column("lable").error().describe(), "\"a.csv\" has no column \"lable\", but 2: \"x\", \"the label\"");
}

TEST(CsvReader, ReadsNumbers) {
  const auto record = first_record("a,b,c,d,e,f\n 12 ,-7,+3,1e-3,nan,-9223372036854775808\n");
  EXPECT_EQ(record.integer(0).value(), 12);
  EXPECT_EQ(record.integer(1).value(), -7);
  EXPECT_EQ(record.integer(2).value(), 3);
  EXPECT_EQ(record.number(3).value(), 1e-3);
  EXPECT_TRUE(std::isnan(record.number(4).value()));
  EXPECT_EQ(record.integer(5).value(), INT64_MIN);
}

TEST(CsvReader, NumberMessages) {
  const auto record = first_record("age,size\n3.5,\"a long text that is no number, and goes on and on\"\n");
  EXPECT_EQ(record.integer(0).error().describe(),
            "\"a.csv\", line 2, column \"age\": expected a whole number of 64 bits, but found \"3.5\"");
  EXPECT_EQ(record.number(1).error().describe(),
            "\"a.csv\", line 2, column \"size\": expected a number, but found \"a long text that is no number, and "
            "goes ...\"");
  for (const char* text : {"", " ", "1x", "+-1", "--1", "0x10", "1e999", "9223372036854775808"}) {
    EXPECT_FALSE(first_record(std::string("a,b\n,") + text + "\n").integer(1).ok()) << text;
  }
  for (const char* text : {"", "x", "1e999", "1,"}) {
    EXPECT_FALSE(first_record(std::string("a,b\n,\"") + text + "\"\n").number(1).ok()) << text;
  }
}

TEST(CsvReader, DamageMessages) {
  const auto message = [](const char* text) { return parse_csv(text).error().describe(); };
  EXPECT_EQ(message(""), "\"a.csv\", line 1: expected a record, but found the end of the file");
  EXPECT_EQ(message("a,b\n\"x\ny\",2\n1\n"),
            "\"a.csv\", line 4: expected 2 fields, as in the first record, but found 1");
  EXPECT_EQ(message("a,b\n1,2,3\n"), "\"a.csv\", line 2: expected 2 fields, as in the first record, but found 3");
  EXPECT_EQ(message("a\n\"open\n\n"),
            "\"a.csv\", line 2: expected a quote at the end of a quoted field, but found the end of the file");
  EXPECT_EQ(message("5\" disk\n"),
            "\"a.csv\", line 1: expected quotes around a whole field, and twice inside one, but "
            "found a quote inside a field without quotes");
  EXPECT_EQ(message("\"a\"b\n"),
            "\"a.csv\", line 1: expected a delimiter or the end of the line after a quoted field, but found \"b\"");
  EXPECT_EQ(message("a\rb\n"),
            "\"a.csv\", line 1: expected a line feed after a carriage return, but found another byte");
  EXPECT_EQ(parse_csv("a,a\n", {}).error().describe(),
            "\"a.csv\", line 1: expected different names of columns, but found \"a\" twice");
  EXPECT_EQ(parse_csv("a", {.delimiter = '"'}).error().describe(),
            "cannot read \"a.csv\": delimiter and quote must differ, and neither may end a line");
}

TEST(CsvReader, ARecordHasAnEnd) {
  EXPECT_EQ(parse_csv("a\n\"" + std::string(size_t{17} << 20, 'x')).error().describe(),
            "\"a.csv\", line 2: expected a record of at most 16.0 MiB, but found a longer one (is a quote missing?)");
}

}  // namespace
}  // namespace cohort::files
