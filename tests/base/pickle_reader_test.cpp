#include "cohort/base/pickle/pickle_reader.h"

#include <gtest/gtest.h>

#include "cohort/base/pickle/pickle_writer.h"

namespace cohort::base {
namespace {

using namespace std::string_literals;

const PickleReaderOptions kAll{.refuse_name = [](const PythonName&) { return ""; },
                               .persistent_ids = true,
                               .new_objects = true,
                               .names_as_values = true,
                               .any_keys = true};
const PickleReaderOptions kPlain{.refuse_name = [](const PythonName& name) { return "no " + name.text(); }};

PickleValue read(const std::string& data, const PickleReaderOptions& options = kAll) {
  auto result = read_pickle(data, options);
  EXPECT_TRUE(result.ok()) << result.error().describe();
  return result.ok() ? result->value : PickleValue();
}

std::string error_of(const std::string& data, const PickleReaderOptions& options = kAll) {
  const auto result = read_pickle(data, options);
  return result.ok() ? "none" : result.error().describe();
}

TEST(PickleReader, ObjectsAreDescribed) {
  // OrderedDict([("a", 1)]) with the attribute _metadata
  const PickleValue dict = read("\x80\x02"s + "ccollections\nOrderedDict\n)RX\1\0\0\0aK\1s}X\1\0\0\0mK\2sb."s);
  EXPECT_EQ(dict.kind(), PickleKind::kObject);
  EXPECT_EQ(dict.name().text(), "collections.OrderedDict");
  ASSERT_EQ(dict.entries().size(), 1u);
  EXPECT_EQ(dict.find("a")->to_int(), 1);
  EXPECT_EQ(dict.object_state().find("m")->to_int(), 2);
  EXPECT_FALSE(is_by_new(dict));

  const PickleValue object = read("\x80\x02"s + "cm\nC\n)\x81K\7a}b."s);
  EXPECT_TRUE(is_by_new(object));
  EXPECT_EQ(object.items().at(0).to_int(), 7);
  EXPECT_EQ(object.object_state().kind(), PickleKind::kDict);

  const PickleValue persistent = read("\x80\x02X\1\0\0\0kcm\nC\n\x86Q."s);
  EXPECT_EQ(persistent.id().items().at(1).name().text(), "m.C");
}

TEST(PickleReader, WhatIsWrittenReturnsEqualInBothProtocols) {
  const PickleValue shared = PickleValue::list({PickleValue::of_int(-5)});
  const PickleValue text = PickleValue::of_text("\u00e9");
  const PickleValue object = PickleValue::object(
      {"m", "C"},
      {.arguments = {shared}, .items = {text}, .state = PickleValue::dict({{text, shared}}), .by_new = true});
  const PickleValue all = PickleValue::tuple(
      {shared, shared, object, PickleValue::persistent(PickleValue::tuple({PickleValue::of_name("m", "C")})),
       PickleValue::of_bytes("x\xff\0"s), PickleValue::of_complex({1, -2}), PickleValue::of_float(0.5), PickleValue(),
       PickleValue::of_bool(true), PickleValue::dict({{PickleValue::of_int(1), PickleValue::tuple({})}})});
  for (const int protocol : {2, 4}) {
    const auto written = write_pickle(all, protocol);
    ASSERT_TRUE(written.ok());
    const PickleValue back = read(*written);
    const auto& items = back.items();
    ASSERT_EQ(items.size(), 10u);
    EXPECT_EQ(items[0].items().at(0).to_int(), -5);
    EXPECT_EQ(items[0].identity(), items[1].identity());
    EXPECT_EQ(items[2].arguments().at(0).identity(), items[0].identity());
    EXPECT_EQ(items[2].items().at(0).text(), "\u00e9");
    EXPECT_EQ(items[2].object_state().find("\u00e9")->identity(), items[0].identity());
    EXPECT_TRUE(is_by_new(items[2]));
    EXPECT_EQ(items[3].id().items().at(0).name().text(), "m.C");
    EXPECT_EQ(items[4].kind(), PickleKind::kBytes);
    EXPECT_EQ(items[4].text(), "x\xff\0"s);
    EXPECT_EQ(items[5].to_complex(), std::complex<double>(1, -2));
    EXPECT_EQ(items[6].to_float(), 0.5);
    EXPECT_TRUE(items[7].is_none());
    EXPECT_TRUE(items[8].to_bool());
    EXPECT_EQ(items[9].entries().at(0).key.to_int(), 1);
  }
}

TEST(PickleReader, AKeyThatComesTwiceHasItsLastValue) {
  const PickleValue dict = read("}(K\1K\2X\1\0\0\0aK\3K\1K\4u."s);
  ASSERT_EQ(dict.entries().size(), 2u);
  EXPECT_EQ(dict.entries()[0].value.to_int(), 4);
}

TEST(PickleReader, WhatIsNotAllowedIsNamed) {
  EXPECT_EQ(error_of("cos\nsystem\n(X\4\0\0\0evil\x85R."s, kPlain), "no os.system");
  EXPECT_EQ(error_of("cos\xff\nx\n."s), "cannot unpickle: a name is not plain text (byte 0 of 8)");
  EXPECT_EQ(error_of("K\1Q."s, kPlain), "cannot unpickle: operation 0x51 is a persistent id (byte 2 of 4)");
  PickleReaderOptions names = kPlain;
  names.refuse_name = [](const PythonName&) { return ""; };
  EXPECT_EQ(error_of("cm\nC\n)\x81."s, names), "cannot unpickle: operation 0x81 is an object of a class (byte 6 of 8)");
  EXPECT_EQ(error_of("](cm\nC\ne."s, names),
            "cannot unpickle: a Python function or storage stands as a value (byte 7 of 9)");
  EXPECT_EQ(
      error_of("})K\1s."s, kPlain),
      "cannot unpickle: a dict has a key of type tuple; str, int, float, complex and bool are possible (byte 4 of 6)");
  EXPECT_EQ(error_of("cm\nC\n)}K\1K\2s\x92."s),
            "cannot unpickle: an object is made with keyword arguments (byte 12 of 14)");
  EXPECT_EQ(error_of("cm\nC\n)Rq\0h\0b."s), "cannot unpickle: a list or dict contains itself (byte 11 of 13)");
}

TEST(PickleReader, AnOperationReachesNoFurtherThanTheLastMark) {
  EXPECT_EQ(read("(K\1(K\2tt."s).items().size(), 2u);
  EXPECT_EQ(error_of("(K\1(q\0tt."s), "cannot unpickle: an operation finds no value (byte 4 of 9)");
}

// A pickle of n bytes must not need n * n.
TEST(PickleReader, SharedPartsAreNotCopied) {
  std::string data = "(c_codecs\nencode\nq\0X\0\0\1\0"s + std::string(65536, 'x') + "q\1X\6\0\0\0latin1q\2"s;
  for (int i = 0; i < 100'000; ++i) data += "h\0h\1h\2\x86R"s;
  const PickleValue tuple = read(data + "t.");
  ASSERT_EQ(tuple.items().size(), 100'003u);
  EXPECT_EQ(tuple.items()[3].identity(), tuple.items().back().identity());

  std::string calls = "(cm\nf\nq\0("s;
  for (int i = 0; i < 10'000; ++i) calls += "N";
  calls += "tq\1"s;
  for (int i = 0; i < 100'000; ++i) calls += "h\0h\1R"s;
  EXPECT_EQ(read(calls + "t.").items().back().arguments().size(), 10'000u);
}

TEST(PickleReader, NestingIsBounded) {
  for (const auto& [open, close] : {std::pair("]"s, "a"s), std::pair("cm\nf\n"s, "\x85R"s), std::pair("N"s, "\x85"s)}) {
    std::string data = open == "N" ? "N" : "";
    if (open != "N") {
      for (int i = 0; i < 400; ++i) data += open;
      data += "N";
    }
    for (int i = 0; i < 400; ++i) data += close;
    EXPECT_TRUE(error_of(data + ".").starts_with("cannot unpickle: nested deeper than 200 (byte ")) << open;
  }
  PickleValue deep;
  for (int i = 0; i < 300; ++i) deep = PickleValue::tuple({deep});
  const auto written = write_pickle(deep, 2);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().message(), "cannot pickle a value nested deeper than 200");
}

}  // namespace
}  // namespace cohort::base
