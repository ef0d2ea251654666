#include "cohort/extras/files/arrays/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "cohort/base/file/file.h"
#include "tests/extras/files/arrays/array_values.h"

namespace cohort::files {
namespace {

using test::big;
using test::little;
using test::values;
using testing::ElementsAre;

base::Result<ArrayData> parse_npy(std::string_view bytes) {
  const RandomAccessFile file = RandomAccessFile::view("cut", bytes);
  auto layout = read_npy_layout(file);
  if (!layout) return layout.error();
  return read_array(file, *layout);
}

std::string npy(const std::string& dictionary, const std::string& elements, char version = 1) {
  const auto size = static_cast<uint32_t>(dictionary.size());
  return std::string("\x93NUMPY", 6) + version + '\0' +
         (version == 1 ? little(static_cast<uint16_t>(size)) : little(size)) + dictionary + elements;
}

std::string of_shape(const std::string& descr, const std::string& shape, const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

TEST(Npy, ReadsBothByteOrders) {
  const auto floats = parse_npy(npy(of_shape("<f4", "(2,)"), little(1.5f) + little(-2.0f))).value();
  EXPECT_EQ(floats.dtype, DType::kFloat32);
  EXPECT_THAT(values<float>(floats), ElementsAre(1.5f, -2.0f));
  const auto shorts = parse_npy(npy(of_shape(">u2", "(2,)"), big<uint16_t>(0x1234) + big<uint16_t>(5))).value();
  EXPECT_THAT(values<uint16_t>(shorts), ElementsAre(0x1234, 5));
  // A complex number is two numbers, each turned round on its own.
  const auto complex = parse_npy(npy(of_shape(">c8", "()"), big(1.0f) + big(2.0f))).value();
  EXPECT_TRUE(complex.shape.empty());
  EXPECT_THAT(values<float>(complex), ElementsAre(1.0f, 2.0f));
  EXPECT_THAT(values<char>(parse_npy(npy(of_shape("|b1", "(3,)"), std::string("\0\2\1", 3))).value()),
              ElementsAre(0, 1, 1));
}

TEST(Npy, FortransOrderBecomesCs) {
  const auto array = parse_npy(npy(of_shape("|u1", "(2, 3, 2)", "True"), "abcdefghijkl")).value();
  // Element [i, j, k] lies at i + 2 * j + 6 * k.
  EXPECT_EQ(std::string(array.span().begin(), array.span().end()), "agciekbhdjfl");
  EXPECT_THAT(array.shape, ElementsAre(2, 3, 2));
  EXPECT_EQ(parse_npy(npy(of_shape("|u1", "(0, 3)", "True"), "")).value().num_bytes, 0);
}

TEST(Npy, ReadsVersionsAndSpellings) {
  for (const char version : {1, 2, 3}) {
    EXPECT_THAT(values<char>(parse_npy(npy(of_shape("|u1", "(2,)"), "ab", version)).value()), ElementsAre('a', 'b'));
  }
  const std::string other = "  {\"shape\":(2L,3L),'fortran_order':True , \"descr\":\"=i1\"}  \n";
  EXPECT_THAT(parse_npy(npy(other, "abcdef")).value().shape, ElementsAre(2, 3));
}

TEST(Npy, TruncationIsAnError) {
  test::expect_truncation_is_an_error(npy(of_shape("<i2", "(2, 2)"), "abcdefgh"), parse_npy);
  test::expect_truncation_is_an_error(npy(of_shape("<i2", "(2, 2)", "True"), "abcdefgh", 3), parse_npy);
}

TEST(Npy, DamageMessages) {
  const auto message = [](const std::string& bytes) { return parse_npy(bytes).error().describe(); };
  EXPECT_EQ(message("PK\3\4 and more"),
            "\"cut\", at byte 0: expected \\x93NUMPY, with which a .npy file begins, but found other bytes");
  EXPECT_EQ(message(npy("{}", "", 4)),
            "\"cut\", at byte 6: expected version 1.0, 2.0 or 3.0 of the format, but found version 4.0");
  EXPECT_EQ(message(npy("{}", "")),
            "\"cut\", at byte 10: expected the keys 'descr', 'fortran_order' and 'shape', but "
            "found a header without all of them");
  EXPECT_EQ(message(npy(of_shape("<i4", "(3,)"), "abcd")),
            "\"cut\", at byte 67: expected 12 bytes of int32 elements, as its header says (3), but found 4 before the "
            "end of the file");
  EXPECT_EQ(message(npy(of_shape("<i4", "(4611686018427387904, 4)"), "abcd")),
            "\"cut\", at byte 87: expected 2^63 or more bytes of int32 elements, as its header says "
            "(4611686018427387904, 4), but found 4 before the end of the file");
  EXPECT_EQ(message(npy(of_shape("<i4", "(-3,)"), "")),
            "\"cut\", at byte 61: expected a length of a dimension, but found '-3,), }'");
  EXPECT_EQ(message(npy("{'descr': '<i4', 'descr': '<i4'}", "")),
            "\"cut\", at byte 27: expected each of the keys 'descr', 'fortran_order' and 'shape' once, but found "
            "''descr': '<i4'}'");
  EXPECT_EQ(message(npy(of_shape("<i4", "(3,)", "__import__('os')"), "")),
            "\"cut\", at byte 44: expected True or False, but found '__import__('os'), 'shape'");
}

TEST(Npy, RefusedTypesMessages) {
  const auto message = [](const std::string& descr) {
    return parse_npy(npy("{'descr': " + descr + ", 'fortran_order': False, 'shape': (1,), }", "12345678"))
        .error()
        .describe();
  };
  const auto refused = [](const std::string& kind, const std::string& found) {
    return "\"cut\", at byte 20: expected a type of plain numbers, such as '<f4' (" + kind +
           " are not read, and nothing in them is executed), but found '" + found + "'";
  };
  EXPECT_EQ(message("'|O'"), refused("Python objects", "'|O', 'fortran_order': F"));
  EXPECT_EQ(message("[('a', '<i4')]"), refused("structured types", "[('a', '<i4')], 'fortran"));
  EXPECT_EQ(message("'<U5'"), refused("texts", "'<U5', 'fortran_order': "));
  EXPECT_EQ(message("'|V8'"), refused("raw or structured types", "'|V8', 'fortran_order': "));
  EXPECT_EQ(message("'<M8[s]'"), refused("dates and times", "'<M8[s]', 'fortran_order"));
  EXPECT_EQ(message("'<f16'"), refused("other types", "'<f16', 'fortran_order':"));
}

TEST(Npy, IsReadAsItWasWritten) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("npy_written." + std::to_string(getpid()))).string();
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {3}, {2, 3}, {0, 2}}) {
    const auto size = num_bytes_of(DType::kInt16, shape).value();
    const std::string elements = std::string("abcdefghijkl").substr(0, size);
    ASSERT_TRUE(write_npy(path, DType::kInt16, shape, elements).ok());
    const auto array = read_npy(path).value();
    EXPECT_EQ(array.shape, shape);
    EXPECT_EQ(array.dtype, DType::kInt16);
    EXPECT_EQ(std::string(array.span().begin(), array.span().end()), elements);
    EXPECT_EQ(base::read_file(path).value().size(), 128 + size);
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace cohort::files
