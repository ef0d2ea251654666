#include "cohort/extras/report/events/event_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <regex>
#include <string>

#include "cohort/base/file/file.h"
#include "cohort/base/system/host.h"
#include "cohort/extras/report/events/record_framing.h"
#include "cohort/extras/report/events/summaries.h"
#include "tests/support/temporary_folder.h"

namespace cohort::report {
namespace {

using test::TemporaryFolder;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(byte));
    text += two;
  }
  return text;
}

uint64_t file_size(const std::string& path) { return std::filesystem::file_size(path); }

mode_t mode_of(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 0777 : 0;
}

TEST(RecordFraming, HasTheChecksumsOfTheStandard) {
  // RFC 3720, B.4, and the usual check.
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(masked_crc32c("123456789"), ((0xe3069283U >> 15) | (0xe3069283U << 17)) + 0xa282ead8U);
}

TEST(RecordFraming, FramesARecord) {
  // What tensorboard.summary.writer.record_writer.RecordWriter writes for b"abc".
  EXPECT_EQ(hex(framed_record("abc")),
            "0300000000000000"
            "b099490e"
            "616263"
            "6e57f121");
}

TEST(Summaries, AreTheBytesOfProtocolBuffers) {
  const EventHeader header{.wall_time = 1.5, .step = 300};
  EXPECT_EQ(hex(summary_event(header, scalar_summary("loss", 0.25)).bytes()),
            "09000000000000f83f"
            "10ac02"
            "2a0d"
            "0a0b"
            "0a046c6f7373"
            "150000803e");
  EXPECT_EQ(hex(session_start_event({.wall_time = 1.5, .step = 7}).bytes()),
            "09000000000000f83f"
            "1007"
            "3a020801");
  EXPECT_EQ(hex(file_version_event({.wall_time = 1.5}).bytes()),
            "09000000000000f83f"
            "1a0d"
            "627261696e2e4576656e743a32");
}

TEST(ProtoMessage, WritesNegativeNumbersInTenBytes) {
  EXPECT_EQ(hex(ProtoMessage().integer(1, -1).bytes()), "08ffffffffffffffffff01");
}

TEST(EventFile, IsNamedAsPythonsAndPrivate) {
  const TemporaryFolder folder;
  auto file = EventFile::create(folder / "a/b", {.filename_suffix = ".tail"});
  ASSERT_TRUE(file) << file.error().describe();
  const std::string name = std::filesystem::path(file->path()).filename();
  const std::regex form("events\\.out\\.tfevents\\.[0-9]{10}\\.(.+)\\.([0-9]+)\\.[0-9]+\\.tail");
  std::smatch match;
  ASSERT_TRUE(std::regex_match(name, match, form)) << name;
  EXPECT_EQ(match[1], base::host_name());
  EXPECT_EQ(match[2], std::to_string(::getpid()));
  EXPECT_EQ(mode_of(file->path()), 0600U);
  EXPECT_EQ(mode_of(folder / "a"), 0700U);
  EXPECT_EQ(mode_of(folder / "a/b"), 0700U);
}

TEST(EventFile, TwoOfOneSecondHaveTwoNames) {
  const TemporaryFolder folder;
  EXPECT_NE(EventFile::create(folder.path())->path(), EventFile::create(folder.path())->path());
}

TEST(EventFile, WritesWhenTheQueueIsFullAndWhenAsked) {
  const TemporaryFolder folder;
  auto file = EventFile::create(folder.path(), {.max_queue = 3});
  const uint64_t empty = file_size(file->path());
  EXPECT_EQ(empty, 16U + 24U);  // frame, and the version of the format
  const ProtoMessage event = summary_event({.wall_time = 1.0, .step = 1}, scalar_summary("a", 1.0));
  const uint64_t record = framed_record(event.bytes()).size();
  ASSERT_TRUE(file->add(event).ok());
  ASSERT_TRUE(file->add(event).ok());
  EXPECT_EQ(file_size(file->path()), empty);
  ASSERT_TRUE(file->add(event).ok());
  EXPECT_EQ(file_size(file->path()), empty + 3 * record);
  ASSERT_TRUE(file->add(event).ok());
  ASSERT_TRUE(file->flush().ok());
  EXPECT_EQ(file_size(file->path()), empty + 4 * record);
}

TEST(EventFile, WritesWhenTheTimeIsOver) {
  const TemporaryFolder folder;
  auto file = EventFile::create(folder.path(), {.max_queue = 100, .flush_interval = std::chrono::seconds(0)});
  const uint64_t empty = file_size(file->path());
  ASSERT_TRUE(file->add(summary_event({}, scalar_summary("a", 1.0))).ok());
  EXPECT_GT(file_size(file->path()), empty);
}

TEST(EventFile, WaitsForAsLongAsSecondsCanSay) {
  const TemporaryFolder folder;
  auto file = EventFile::create(folder.path(), {.max_queue = 2, .flush_interval = std::chrono::seconds::max()});
  const uint64_t empty = file_size(file->path());
  ASSERT_TRUE(file->add(summary_event({}, scalar_summary("a", 1.0))).ok());
  EXPECT_EQ(file_size(file->path()), empty);
}

TEST(EventFile, HoldsTextsThatAreUtf8) {
  const std::string bad = "caf\xe9", good = "caf\xef\xbf\xbd";
  const auto has = [](const ProtoMessage& message, const std::string& text) {
    return message.bytes().find(text) != std::string::npos;
  };
  const HyperparameterList values = {{bad, bad}};
  const ProtoMessage messages[] = {scalar_summary(bad, 1.0), text_summary(bad, bad),
                                   layout_summary({{bad, {{bad, false, {bad}}, {bad, true, {bad, bad, bad}}}}}),
                                   experiment_summary(values, {bad}), session_start_summary(values)};
  for (const ProtoMessage& message : messages) {
    EXPECT_TRUE(has(message, good));
    EXPECT_FALSE(has(message, "\xe9"));
  }
}

TEST(EventFile, SaysWhyItCannotBeMade) {
  const TemporaryFolder folder;
  ASSERT_TRUE(base::write_all(base::open_for_writing(folder / "file")->get(), "x").ok());
  const auto file = EventFile::create(folder / "file/run");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().describe(), "cannot create the folder \"" + (folder / "file") + "\": File exists (EEXIST)");
}

}  // namespace
}  // namespace cohort::report
