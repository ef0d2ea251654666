#include "cohort/extras/files/arrays/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/extras/files/arrays/array_values.h"

namespace cohort::files {
namespace {

using test::little;
using testing::ElementsAre;

struct Member {
  std::string name;
  std::string content;
  bool is_deflated = false;
  uint32_t claimed_size = 0;  ///< 0: the true one
};

std::string raw_deflate(const std::string& bytes) {
  z_stream zlib = {};
  EXPECT_EQ(deflateInit2(&zlib, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&zlib, bytes.size()), '\0');
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  zlib.avail_in = static_cast<uInt>(bytes.size());
  zlib.next_out = reinterpret_cast<Bytef*>(packed.data());
  zlib.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&zlib, Z_FINISH), Z_STREAM_END);
  packed.resize(zlib.total_out);
  deflateEnd(&zlib);
  return packed;
}

std::string zip_of(const std::vector<Member>& members) {
  std::string archive;
  std::string directory;
  for (const Member& member : members) {
    const std::string packed = member.is_deflated ? raw_deflate(member.content) : member.content;
    const auto checksum = static_cast<uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(member.content.data()), static_cast<uInt>(member.content.size())));
    const auto size = member.claimed_size != 0 ? member.claimed_size : static_cast<uint32_t>(member.content.size());
    const std::string common = little<uint16_t>(20) + little<uint16_t>(0) +
                               little<uint16_t>(member.is_deflated ? 8 : 0) + little<uint32_t>(0x00210000) +
                               little(checksum) + little(static_cast<uint32_t>(packed.size())) + little(size) +
                               little(static_cast<uint16_t>(member.name.size())) + little<uint16_t>(0);
    directory += "PK\1\2" + little<uint16_t>(20) + common + little<uint16_t>(0) + little<uint16_t>(0) +
                 little<uint16_t>(0) + little<uint32_t>(0) + little(static_cast<uint32_t>(archive.size())) +
                 member.name;
    archive += "PK\3\4" + common + member.name + packed;
  }
  const auto count = static_cast<uint16_t>(members.size());
  return archive + directory + "PK\5\6" + little<uint32_t>(0) + little(count) + little(count) +
         little(static_cast<uint32_t>(directory.size())) + little(static_cast<uint32_t>(archive.size())) +
         little<uint16_t>(0);
}

std::string bytes_as_npy(const std::string& bytes) {
  const std::string header =
      "{'descr': '|u1', 'fortran_order': False, 'shape': (" + std::to_string(bytes.size()) + ",), }";
  return std::string("\x93NUMPY\1\0", 8) + little(static_cast<uint16_t>(header.size())) + header + bytes;
}

base::Result<std::string> read_member(std::string_view archive, const std::string& name) {
  auto npz = NpzFile::view("cut", archive);
  if (!npz) return npz.error();
  auto array = npz->read(name);
  if (!array) return array.error();
  return std::string(array->span().begin(), array->span().end());
}

TEST(Npz, ReadsStoredAndDeflatedMembers) {
  std::string large;  // longer than what is read to find the header
  for (int i = 0; i < 300'000; ++i) large += static_cast<char>(i * i >> 5);
  const std::string archive = zip_of(
      {{"x.npy", bytes_as_npy("first")}, {"y.npy", bytes_as_npy(large), true}, {"z.npy", bytes_as_npy(""), true}});
  EXPECT_THAT(NpzFile::view("a.npz", archive).value().names(), ElementsAre("x", "y", "z"));
  EXPECT_EQ(read_member(archive, "x").value(), "first");
  EXPECT_EQ(read_member(archive, "y").value(), large);
  EXPECT_EQ(read_member(archive, "z").value(), "");
}

TEST(Npz, TruncationIsAnError) {
  const std::string archive = zip_of({{"x.npy", bytes_as_npy("first")}, {"y.npy", bytes_as_npy("second"), true}});
  test::expect_truncation_is_an_error(archive, [](std::string_view bytes) { return read_member(bytes, "y"); });
}

TEST(Npz, DamageMessages) {
  const auto message = [](const std::string& archive) { return read_member(archive, "x").error().describe(); };
  EXPECT_EQ(message("no archive"), "cannot read \"cut\" as a zip archive: Not a zip archive");
  EXPECT_EQ(message(zip_of({{"a.npy", bytes_as_npy("1")}, {"b.npy", bytes_as_npy("2")}})),
            "\"cut\" has no array \"x\", but 2 others: \"a\", \"b\"");
  EXPECT_EQ(message(zip_of({{"x.npy", bytes_as_npy("1")}, {"x.txt", "1"}})),
            "\"cut\" is not a .npz file: its member \"x.txt\" is not a .npy file");
  std::string damaged = zip_of({{"x.npy", bytes_as_npy("first")}});
  damaged[damaged.find("first")] = 'F';
  EXPECT_EQ(message(damaged), "\"cut/x.npy\" cannot be unpacked: CRC error");
  EXPECT_EQ(
      message(zip_of({{"x.npy", "\x93NUMPY"}})),
      "\"cut/x.npy\", at byte 0: expected 8 bytes of the beginning of a .npy file, but found only 6 before the end "
      "of the file");
}

TEST(Npz, SizesThatCannotBeMessages) {
  const auto message = [](const Member& member) { return read_member(zip_of({member}), "x").error().describe(); };
  EXPECT_EQ(message({"x.npy", bytes_as_npy("1"), false, 1u << 30}),
            "\"cut/x.npy\" cannot have 1073741824 bytes that are packed into 68, in an archive of 176");
  EXPECT_THAT(message({"x.npy", bytes_as_npy("1"), true, 1u << 30}),
              testing::StartsWith("\"cut/x.npy\" cannot have 1073741824 bytes that are packed into "));
  EXPECT_EQ(message({"x.npy", bytes_as_npy("1"), true, 72}), "\"cut/x.npy\" ends 4 bytes too early");
  EXPECT_EQ(message({"x.npy", bytes_as_npy("12"), true, 68}),
            "\"cut/x.npy\", at byte 67: expected 2 bytes of uint8 elements, as its header says (2), but found 1 before "
            "the end of the file");
}

TEST(Npz, MissingFileMessage) {
  EXPECT_EQ(NpzFile::open("/no/such.npz").error().describe(),
            "cannot read \"/no/such.npz\": No such file or directory (ENOENT)");
}

}  // namespace
}  // namespace cohort::files
