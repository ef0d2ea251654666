#include "cohort/extras/files/sets/cifar_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::files {
namespace {

using testing::ElementsAre;

std::string pixels_of(char first) {
  std::string pixels(kCifarImageBytes, '\0');
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<char>(first + static_cast<char>(i * 31));
  return pixels;
}

TEST(CifarRecords, LabelsAndPixelsOfEachRecord) {
  const std::string bytes = std::string("\x03") + pixels_of('a') + "\x09" + pixels_of('b');
  CifarImages images;
  ASSERT_TRUE(read_cifar_records(InputFile::view("a.bin", bytes), {}, images).ok());
  EXPECT_THAT(images.labels, ElementsAre(3, 9));
  EXPECT_EQ(std::string(images.pixels.begin(), images.pixels.end()), pixels_of('a') + pixels_of('b'));
  ASSERT_TRUE(read_cifar_records(InputFile::view("b.bin", "\x01" + pixels_of('c')), {}, images).ok());
  EXPECT_THAT(images.labels, ElementsAre(3, 9, 1));
}

TEST(CifarRecords, CoarseAndFineLabels) {
  const std::string bytes = std::string("\x07\x2a") + pixels_of('a') + "\x08\x2b" + pixels_of('b');
  CifarImages coarse, fine;
  const auto file = InputFile::view("train.bin", bytes);
  ASSERT_TRUE(read_cifar_records(file, {.num_label_bytes = 2, .label_byte = 0, .num_classes = 20}, coarse).ok());
  ASSERT_TRUE(read_cifar_records(file, {.num_label_bytes = 2, .label_byte = 1, .num_classes = 100}, fine).ok());
  EXPECT_THAT(coarse.labels, ElementsAre(7, 8));
  EXPECT_THAT(fine.labels, ElementsAre(42, 43));
  EXPECT_EQ(coarse.pixels, fine.pixels);
}

TEST(CifarRecords, DamagedFilesMessages) {
  const auto error_of = [](const std::string& bytes) {
    CifarImages images;
    return read_cifar_records(InputFile::view("a.bin", bytes), {}, images).error().describe();
  };
  const std::string record = "\x03" + pixels_of('a');
  EXPECT_EQ(error_of(""), "\"a.bin\", at byte 0: expected a record of 3073 bytes, but found an empty file");
  EXPECT_EQ(error_of(record + "\x01rest"),
            "\"a.bin\", at byte 3073: expected a record of 3073 bytes, but found only 5");
  EXPECT_EQ(error_of(record + "\x0a" + pixels_of('a')),
            "\"a.bin\", at byte 3073: expected a label below 10, but found 10");
}

TEST(CifarRecords, NamesOfClasses) {
  EXPECT_THAT(read_class_names(InputFile::view("n.txt", "cat\ndog\r\n\n"), 2).value(), ElementsAre("cat", "dog"));
  EXPECT_EQ(read_class_names(InputFile::view("n.txt", "cat\n"), 2).error().describe(),
            "\"n.txt\", at byte 4: expected 2 names of classes, one a line, but found 1");
  EXPECT_EQ(read_class_names(InputFile::view("n.txt", "a\nb\nc\n"), 2).error().describe(),
            "\"n.txt\", at byte 6: expected 2 names of classes, one a line, but found more than 2");
}

}  // namespace
}  // namespace cohort::files
