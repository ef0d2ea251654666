#include "cohort/files/tensors/pt/zip_layout.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "cohort/base/file/file.h"
#include "cohort/files/tensors/elements/crc32.h"
#include "cohort/files/tensors/pt/zip_directory.h"

namespace cohort::files {
namespace {

// The records' bytes; the layout's pieces around them.
std::string assemble(ZipLayout* layout, const std::vector<std::pair<std::string, std::string>>& records) {
  std::vector<uint64_t> offsets;
  for (size_t i = 0; i < records.size(); ++i) {
    offsets.push_back(layout->add(records[i].first, records[i].second.size()));
    layout->set_crc(i, crc32(records[i].second));
  }
  std::string out(layout->file_size(), '?');
  for (const auto& piece : layout->pieces()) out.replace(piece.offset, piece.bytes.size(), piece.bytes);
  for (size_t i = 0; i < records.size(); ++i) out.replace(offsets[i], records[i].second.size(), records[i].second);
  return out;
}

TEST(ZipLayout, WhatIsWrittenIsFoundAtMultiplesOf64) {
  ZipLayout layout;
  const std::string bytes =
      assemble(&layout, {{"m/data.pkl", "abc"}, {"m/empty", ""}, {"m/data/0", std::string(100, 'x')}});
  const auto file = RandomAccessFile::view("x.pt", bytes);
  const auto directory = read_zip_directory(file);
  ASSERT_TRUE(directory.ok()) << directory.error().describe();
  ASSERT_EQ(directory->records.size(), 3u);
  for (const ZipRecord& record : directory->records) EXPECT_EQ(record.offset % 64, 0u) << record.name;
  EXPECT_EQ(read_zip_record(file, *directory->find("m/data.pkl"), 10).value(), "abc");
  EXPECT_EQ(directory->find("m/empty")->size, 0u);
  EXPECT_EQ(directory->find("m/data/0")->crc, crc32(std::string(100, 'x')));
  EXPECT_EQ(read_zip_record(file, *directory->find("m/data/0"), 10).error().message(),
            "\"x.pt\": its record \"m/data/0\" has 100 bytes, more than the 10 that are read");
}

// A sparse file: nothing of the 5 GiB is written.
TEST(ZipLayout, LargeRecordsHaveNumbersOf64Bits) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("cohort_zip_layout_" + std::to_string(getpid()))).string();
  ZipLayout layout;
  constexpr uint64_t kSize = uint64_t{5} << 30;
  layout.add("m/large", kSize);
  layout.add("m/behind", 3);
  layout.set_crc(1, crc32("abc"));
  const base::Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  ASSERT_EQ(ftruncate(fd.get(), static_cast<off_t>(layout.file_size())), 0);
  for (const auto& piece : layout.pieces()) {
    ASSERT_EQ(pwrite(fd.get(), piece.bytes.data(), piece.bytes.size(), static_cast<off_t>(piece.offset)),
              static_cast<ssize_t>(piece.bytes.size()));
  }
  auto file = RandomAccessFile::open(path).value();
  const auto directory = read_zip_directory(file);
  ASSERT_TRUE(directory.ok()) << directory.error().describe();
  EXPECT_EQ(directory->find("m/large")->size, kSize);
  const ZipRecord* behind = directory->find("m/behind");
  EXPECT_GT(behind->header_offset, kSize);
  ASSERT_EQ(pwrite(fd.get(), "abc", 3, static_cast<off_t>(behind->offset)), 3);
  EXPECT_EQ(read_zip_record(file, *behind, 3).value(), "abc");
  std::filesystem::remove(path);
}

// The first record's sizes, in the directory, reach over the second one.
TEST(ZipDirectory, RecordsDoNotOverlapMessage) {
  ZipLayout layout;
  std::string bytes = assemble(&layout, {{"m/a", "abc"}, {"m/b", "def"}, {"m/c", std::string(200, 'x')}});
  const size_t entry = bytes.find("PK\x01\x02");
  for (const size_t field : {size_t{20}, size_t{24}}) bytes[entry + field] = 100;
  EXPECT_EQ(read_zip_directory(RandomAccessFile::view("x.pt", bytes)).error().message(),
            "\"x.pt\", at byte 83: expected records that do not overlap, but found \"m/b\"");
}

// Every byte changed, and every length: an error or a directory whose records lie in the file.
TEST(ZipDirectory, SurvivesTruncatedAndChangedFiles) {
  ZipLayout layout;
  const std::string good = assemble(&layout, {{"m/data.pkl", "abc"}, {"m/data/0", std::string(10, 'x')}});
  const auto check = [](const std::string& bytes) {
    const auto directory = read_zip_directory(RandomAccessFile::view("x.pt", bytes));
    if (!directory) return;
    for (const ZipRecord& record : directory->records) {
      EXPECT_LE(record.offset, bytes.size());
      EXPECT_LE(record.size, bytes.size() - record.offset);
    }
  };
  for (size_t i = 0; i < good.size(); ++i) {
    check(good.substr(0, i));
    for (const int change : {1, 0x80, 0xFF}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ change);
      check(bad);
    }
  }
}

}  // namespace
}  // namespace cohort::files
