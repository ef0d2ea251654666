#include "cohort/files/tensors/sources/pt_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cohort/files/tensors/pt/pt_writer.h"
#include "cohort/files/tensors/pt/strided_reader.h"

namespace cohort::files {
namespace {

using base::PickleValue;

class PtFiles : public testing::Test {
 protected:
  ~PtFiles() override { std::filesystem::remove(path); }

  std::unique_ptr<TensorSource> written(const PickleValue& root, const std::vector<StorageBytes>& storages) {
    const auto done = write_pt_file(path, root, storages, {.sync = base::Sync::kNo});
    EXPECT_TRUE(done.ok()) << done.error().describe();
    auto source = open_pt_file(path);
    EXPECT_TRUE(source.ok()) << source.error().describe();
    return source.ok() ? std::move(source).value() : nullptr;
  }

  static std::string all(const TensorSource& source, size_t tensor) {
    std::string bytes(static_cast<size_t>(source.tensors()[tensor].num_bytes()), '\0');
    EXPECT_TRUE(source.read(tensor, 0, bytes).ok());
    return bytes;
  }

  const std::string path =
      (std::filesystem::temp_directory_path() / ("cohort_pt_source_" + std::to_string(getpid()) + ".pt")).string();
};

PickleValue text(const std::string& value) { return PickleValue::of_text(value); }

TEST_F(PtFiles, NamesHaveDotsAndViewsAreGathered) {
  const std::string bytes = "abcdefghijkl";  // 3 x 4
  const auto root = PickleValue::dict(
      {{text("model"), pt_ordered_dict({{text("w"), pt_tensor({.key = "0", .dtype = Dtype::kUInt8, .shape = {3, 4}})},
                                        {text("t"), pt_tensor({.key = "0",
                                                               .dtype = Dtype::kUInt8,
                                                               .shape = {2, 3},
                                                               .strides = {1, 4},
                                                               .offset = 1,
                                                               .storage_elements = 12})}})},
       {text("steps"), PickleValue::list({PickleValue::of_int(7), PickleValue::tuple({})})}});
  const auto source = written(root, {{.bytes = bytes}});
  ASSERT_EQ(source->tensors().size(), 2u);
  EXPECT_EQ(source->format(), "PyTorch zip");
  EXPECT_EQ(source->tensors()[0].name, "model.w");
  EXPECT_EQ(source->tensors()[1].name, "model.t");
  EXPECT_EQ(all(*source, 0), bytes);
  EXPECT_EQ(all(*source, 1), "bfjcgk");
  std::string part(3, '\0');
  ASSERT_TRUE(source->read(1, 2, part).ok());
  EXPECT_EQ(part, "jcg");
  ASSERT_EQ(source->contents().values.size(), 2u);
  EXPECT_EQ(source->contents().values[0].name, "steps.0");
  EXPECT_EQ(source->contents().values[0].value.to_int(), 7);
  EXPECT_EQ(source->contents().values[1].name, "steps.1");
}

TEST_F(PtFiles, BytesMayComeWhenTheyAreAskedFor) {
  std::string bytes(3 << 20, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 24);
  const StorageBytes storage{.read =
                                 [&](uint64_t first, std::span<char> to) {
                                   std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(first), to.size(),
                                               to.begin());
                                   return base::Result<void>();
                                 },
                             .size = bytes.size()};
  const auto shape = static_cast<int64_t>(bytes.size());
  const auto source = written(
      PickleValue::dict({{text("x"), pt_tensor({.key = "0", .dtype = Dtype::kUInt8, .shape = {shape}})}}), {storage});
  EXPECT_EQ(all(*source, 0), bytes);

  const StorageBytes failing{.read = [](uint64_t, std::span<char>) { return base::Result<void>(base::Error("gone")); },
                             .size = 8};
  std::filesystem::remove(path);
  const auto done = write_pt_file(path, PickleValue(), {failing});
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().describe(), "cannot write \"" + path + "\"\n  caused by: gone");
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(PtFiles, SharedPartsCanHaveTooManyPaths) {
  PickleValue laughs = PickleValue::list({PickleValue::of_int(1)});
  for (int i = 0; i < 60; ++i) laughs = PickleValue::list({laughs, laughs});
  ASSERT_TRUE(write_pt_file(path, laughs, {}, {.sync = base::Sync::kNo}).ok());
  const auto source = open_pt_file(path);
  ASSERT_FALSE(source.ok());
  EXPECT_EQ(source.error().message(),
            "cannot list \"" + path + "\": its values refer to each other in more ways than can be listed");
}

TEST_F(PtFiles, AConjugateViewIsNamed) {
  const auto root = PickleValue::dict(
      {{text("c"), pt_tensor({.key = "0", .dtype = Dtype::kComplex64, .shape = {1}, .is_conjugate = true})}});
  const auto source = written(root, {{.bytes = "12345678"}});
  std::string bytes(8, '\0');
  EXPECT_EQ(
      source->read(0, 0, bytes).error().message(),
      "tensor \"c\" of \"" + path + "\" is a view of conjugates or negatives, whose elements are not in the file");
}

// Rows far apart are read one by one, near ones together: the same bytes.
TEST(StridedReader, RowsFarApart) {
  std::string bytes(64 << 20, '\0');
  const int64_t stride = 20 << 20;
  for (int64_t row = 0; row < 3; ++row) std::memcpy(&bytes[static_cast<size_t>(row * stride)], "xyz", 3);
  const PtTensor tensor{.dtype = Dtype::kUInt8, .shape = {3, 3}, .strides = {stride, 1}};
  std::string out(8, '\0');
  ASSERT_TRUE(read_strided(RandomAccessFile::view("x", bytes), 0, tensor, 1, out).ok());
  EXPECT_EQ(out, "yzxyzxyz");
  const PtTensor swapped{.dtype = Dtype::kUInt16, .offset = 0, .shape = {2, 2}, .strides = {1, 2}};
  std::string elements(8, '\0');
  ASSERT_TRUE(read_strided(RandomAccessFile::view("x", "aabbccdd"), 0, swapped, 0, elements).ok());
  EXPECT_EQ(elements, "aaccbbdd");
}

}  // namespace
}  // namespace cohort::files
