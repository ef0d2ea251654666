#include "cohort/files/input/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace cohort::files {
namespace {

std::string temporary_path(const std::string& name) {
  return (std::filesystem::temp_directory_path() / (name + "." + std::to_string(getpid()))).string();
}

TEST(InputFile, IsTheBytesOfTheFile) {
  const std::string path = temporary_path("input_file");
  std::ofstream(path) << "0123456789";
  auto mapped = InputFile::map(path);
  ASSERT_TRUE(mapped.ok()) << mapped.error().describe();
  const InputFile file = std::move(mapped).value();
  EXPECT_EQ(file.bytes(), "0123456789");
  EXPECT_EQ(file.take(2, 3, "digits").value(), "234");
  EXPECT_EQ(file.take(10, 0, "digits").value(), "");
  std::filesystem::remove(path);
  EXPECT_EQ(file.bytes(), "0123456789");  // as long as it is mapped
}

TEST(InputFile, AnEmptyFileHasNoBytes) {
  const std::string path = temporary_path("input_file_empty");
  std::ofstream{path};
  EXPECT_EQ(InputFile::map(path).value().bytes(), "");
  std::filesystem::remove(path);
}

TEST(InputFile, MissingBytesMessages) {
  const InputFile file = InputFile::view("a.bin", "0123456789");
  EXPECT_EQ(file.take(8, 4, "digits").error().describe(),
            "\"a.bin\", at byte 8: expected 4 bytes of digits, but found only 2 before the end of the file");
  EXPECT_EQ(file.take(12, 4, "digits").error().describe(),
            "\"a.bin\", at byte 12: expected 4 bytes of digits, but found the end of the file");
  EXPECT_FALSE(file.take(8, UINT64_MAX, "digits").ok());
  EXPECT_FALSE(file.take(UINT64_MAX, 8, "digits").ok());
}

TEST(InputFile, WhatIsNoFileMessages) {
  EXPECT_EQ(InputFile::map("/no/such/file").error().describe(),
            "cannot read \"/no/such/file\": No such file or directory (ENOENT)");
  EXPECT_EQ(InputFile::map("/tmp").error().describe(), "cannot read \"/tmp\": it is a folder");
  const std::string pipe = temporary_path("input_file_pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(InputFile::map(pipe).error().describe(), "cannot read \"" + pipe + "\": it is not a regular file");
  std::filesystem::remove(pipe);
}

}  // namespace
}  // namespace cohort::files
