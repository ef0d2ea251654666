#include "cohort/base/pickle_writer.h"

#include <gtest/gtest.h>

namespace cohort::base {
namespace {

using namespace std::string_literals;

template <class Write>
std::string written(int protocol, Write write) {
  PickleWriter writer(protocol);
  write(writer);
  return writer.finish();
}

std::string of_int(int64_t value) {
  return written(4, [&](PickleWriter& writer) { writer.put_int(value); });
}

TEST(PickleWriter, IntegersTakeTheShortestForm) {
  EXPECT_EQ(of_int(255), "\x80\x04K\xff."s);
  EXPECT_EQ(of_int(256), "\x80\x04M\0\x01."s);
  EXPECT_EQ(of_int(0xffff), "\x80\x04M\xff\xff."s);
  EXPECT_EQ(of_int(-1), "\x80\x04J\xff\xff\xff\xff."s);
  EXPECT_EQ(of_int(int64_t{1} << 31), "\x80\x04\x8a\x08\0\0\0\x80\0\0\0\0."s);
  EXPECT_EQ(written(2, [](PickleWriter& writer) { writer.put_long(1); }), "\x80\x02\x8a\x08\x01\0\0\0\0\0\0\0."s);
}

TEST(PickleWriter, TextsAreShortInProtocolFourAlone) {
  const auto put = [](PickleWriter& writer) { writer.put_text("ab"); };
  EXPECT_EQ(written(4, put), "\x80\x04\x8c\x02"s + "ab.");
  EXPECT_EQ(written(2, put), "\x80\x02X\x02\0\0\0"s + "ab.");
  const std::string longer(256, 'x');
  EXPECT_EQ(written(4, [&](PickleWriter& writer) { writer.put_bytes(longer); }),
            "\x80\x04"s + "B" + "\0\x01\0\0"s + longer + ".");
}

TEST(PickleWriter, ConstantsNumbersAndNames) {
  EXPECT_EQ(written(4,
                    [](PickleWriter& writer) {
                      writer.put({pickle_opcode::kEmptyList, pickle_opcode::kMark});
                      writer.put_none();
                      writer.put_bool(true);
                      writer.put_bool(false);
                      writer.put_double(0.5);
                      writer.put_name("m", "n");
                      writer.put(pickle_opcode::kAppends);
                    }),
            "\x80\x04](N\x88\x89G\x3f\xe0\0\0\0\0\0\0\x8c\x01m\x8c\x01n\x93"s + "e.");
}

}  // namespace
}  // namespace cohort::base
