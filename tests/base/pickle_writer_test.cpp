#include "cohort/base/pickle/pickle_writer.h"

#include <gtest/gtest.h>

namespace cohort::base {
namespace {

using namespace std::string_literals;

std::string written(int protocol, const PickleValue& value) { return *write_pickle(value, protocol); }

std::string of_int(int64_t value) { return written(4, PickleValue::of_int(value)); }

TEST(PickleWriter, IntegersTakeTheShortestForm) {
  EXPECT_EQ(of_int(255), "\x80\x04K\xff."s);
  EXPECT_EQ(of_int(256), "\x80\x04M\0\x01."s);
  EXPECT_EQ(of_int(0xffff), "\x80\x04M\xff\xff."s);
  EXPECT_EQ(of_int(-1), "\x80\x04J\xff\xff\xff\xff."s);
  EXPECT_EQ(of_int(int64_t{1} << 31), "\x80\x04\x8a\x08\0\0\0\x80\0\0\0\0."s);
}

TEST(PickleWriter, TextsAreShortInProtocolFourAlone) {
  const auto text = PickleValue::of_text("ab");
  EXPECT_EQ(written(4, text), "\x80\x04\x8c\x02"s + "ab.");
  EXPECT_EQ(written(2, text), "\x80\x02X\x02\0\0\0"s + "ab.");
  const std::string longer(256, 'x');
  for (const auto& bytes : {PickleValue::of_bytes(longer), PickleValue::view_of_bytes(longer)}) {
    EXPECT_EQ(written(4, bytes), "\x80\x04"s + "B" + "\0\x01\0\0"s + longer + ".");
  }
}

TEST(PickleWriter, ConstantsNumbersAndNames) {
  const auto list =
      PickleValue::list({PickleValue(), PickleValue::of_bool(true), PickleValue::of_bool(false),
                         PickleValue::of_float(0.5), PickleValue::of_name("m", "n"), PickleValue::of_name("m", "n")});
  EXPECT_EQ(written(4, list), "\x80\x04](N\x88\x89G\x3f\xe0\0\0\0\0\0\0\x8c\x01m\x8c\x01n\x93q\0h\0"s + "e.");
}

}  // namespace
}  // namespace cohort::base
