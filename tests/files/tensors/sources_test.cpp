// Statistics, comparison, averages and conversion of files of tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "cohort/base/file/file.h"
#include "cohort/files/tensors/sources/average_source.h"
#include "cohort/files/tensors/sources/open_source.h"
#include "cohort/files/tensors/sources/pt_checksums.h"
#include "cohort/files/tensors/sources/source_comparison.h"
#include "cohort/files/tensors/sources/tensor_statistics.h"
#include "cohort/files/tensors/sources/write_source.h"
#include "tests/files/tensors/memory_source.h"

namespace cohort::files {
namespace {

namespace fs = std::filesystem;
using base::PickleValue;
using testing::ElementsAre;

constexpr float kNanF = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinityF = std::numeric_limits<float>::infinity();

TEST(TensorStatistics, OfFiniteElements) {
  MemorySource source;
  source.add<float>("w", Dtype::kFloat32, {2, 3}, {3, -4, kNanF, 0, kInfinityF, 12});
  const auto statistics = statistics_of(source, 0).value();
  EXPECT_EQ(statistics.num_nan, 1);
  EXPECT_EQ(statistics.num_infinite, 1);
  EXPECT_EQ(statistics.num_finite, 4);
  EXPECT_EQ(statistics.min, -4);
  EXPECT_EQ(statistics.max, 12);
  EXPECT_EQ(statistics.mean, 2.75);
  EXPECT_EQ(statistics.norm, 13);
}

TEST(TensorStatistics, OfNothingAndOfMagnitudes) {
  MemorySource source;
  source.add<float>("none", Dtype::kFloat32, {0, 3}, {}).add<float>("c", Dtype::kComplex64, {2}, {3, 4, 0, -1});
  EXPECT_EQ(statistics_of(source, 0).value().num_finite, 0);
  EXPECT_EQ(statistics_of(source, 0).value().mean, 0);
  const auto statistics = statistics_of(source, 1).value();
  EXPECT_EQ(statistics.max, 5);
  EXPECT_EQ(statistics.mean, 3);
}

TEST(TensorStatistics, ManySmallNumbersAreNotLost) {
  std::vector<double> elements(300'000, 1e-3);
  elements[0] = 1e16;
  elements.back() = -1e16;
  MemorySource source;
  source.add<double>("w", Dtype::kFloat64, {300'000}, elements);
  EXPECT_NEAR(statistics_of(source, 0).value().mean, 299.998 / 300'000, 1e-9);
}

TEST(SourceComparison, FindsEveryKindOfDifference) {
  MemorySource a, b;
  a.add<float>("same", Dtype::kFloat32, {2}, {kNanF, 0.0F}).add<float>("less", Dtype::kFloat32, {2}, {1, 2});
  b.add<float>("less", Dtype::kFloat32, {2}, {1, 2.5F}).add<float>("same", Dtype::kFloat32, {2}, {-kNanF, -0.0F});
  a.add<float>("shape", Dtype::kFloat32, {2, 1}, {1, 2}).add<int64_t>("dtype", Dtype::kInt64, {2}, {1, 2});
  b.add<float>("shape", Dtype::kFloat32, {1, 2}, {1, 2}).add<int32_t>("dtype", Dtype::kInt32, {2}, {1, 5});
  a.add<float>("mine", Dtype::kFloat32, {1}, {1});
  b.add<float>("yours", Dtype::kFloat32, {1}, {1});
  // One number in float64, but two.
  a.add<int64_t>("large", Dtype::kInt64, {1}, {(int64_t{1} << 53) + 1});
  b.add<int64_t>("large", Dtype::kInt64, {1}, {int64_t{1} << 53});
  a.add<float>("nan", Dtype::kFloat32, {2}, {kNanF, 1});
  b.add<float>("nan", Dtype::kFloat32, {2}, {1, 1});
  a.add_value("lr", PickleValue::of_float(0.1)).add_value("epoch", PickleValue::of_int(3));
  b.add_value("lr", PickleValue::of_float(0.2)).add_value("epoch", PickleValue::of_int(3));
  const auto result = compare_sources(a, b).value();
  EXPECT_THAT(result.only_in_first, ElementsAre("mine"));
  EXPECT_THAT(result.only_in_second, ElementsAre("yours"));
  EXPECT_EQ(result.num_same, 2);
  ASSERT_EQ(result.tensors.size(), 5u);
  EXPECT_EQ(result.tensors[0].first.name, "dtype");
  EXPECT_EQ(result.tensors[0].num_different, 1);
  EXPECT_EQ(result.tensors[0].max_difference, 3);
  EXPECT_EQ(result.tensors[1].first.name, "large");
  EXPECT_EQ(result.tensors[1].num_different, 1);
  EXPECT_EQ(result.tensors[2].first.name, "less");
  EXPECT_EQ(result.tensors[2].num_different, 1);
  EXPECT_EQ(result.tensors[2].max_difference, 0.5);
  EXPECT_EQ(result.tensors[3].first.name, "nan");
  EXPECT_EQ(result.tensors[3].num_not_finite, 1);
  EXPECT_FALSE(result.tensors[4].same_shape());
  ASSERT_EQ(result.values.size(), 1u);
  EXPECT_EQ(result.values[0].first, "0.1");
  EXPECT_FALSE(result.is_same());
  EXPECT_TRUE(compare_sources(a, a).value().is_same());
}

std::vector<float> floats_of(const TensorSource& source, size_t tensor) {
  std::vector<float> elements(source.tensors()[tensor].num_elements());
  const std::span<char> bytes(reinterpret_cast<char*>(elements.data()), elements.size() * sizeof(float));
  EXPECT_TRUE(source.read(tensor, 0, bytes).ok());
  return elements;
}

base::Result<std::unique_ptr<TensorSource>> average_of(MemorySource a, MemorySource b) {
  std::vector<std::unique_ptr<TensorSource>> sources;
  sources.push_back(std::make_unique<MemorySource>(std::move(a)));
  sources.push_back(std::make_unique<MemorySource>(std::move(b)));
  return AverageSource::open(std::move(sources));
}

TEST(AverageSource, IsTheMeanAndTakesIntegersFromTheLast) {
  MemorySource a("a"), b("b");
  a.add<float>("w", Dtype::kFloat32, {3}, {1, 2, 3e38F}).add<int64_t>("n", Dtype::kInt64, {1}, {7});
  b.add<int64_t>("n", Dtype::kInt64, {1}, {9}).add<float>("w", Dtype::kFloat32, {3}, {2, 4, 3e38F});
  b.add_value("epoch", PickleValue::of_int(5));
  const auto average = average_of(a, b).value();
  EXPECT_EQ(average->tensors()[0].name, "n");
  EXPECT_THAT(floats_of(*average, 1), ElementsAre(1.5F, 3, 3e38F));  // a sum in float32 would be infinite
  int64_t number = 0;
  EXPECT_TRUE(average->read(0, 0, std::span(reinterpret_cast<char*>(&number), 8)).ok());
  EXPECT_EQ(number, 9);
  EXPECT_EQ(average->contents().values.size(), 1u);
  // Bytes in the middle of elements.
  const float expected[] = {1.5F, 3};
  char two[3];
  EXPECT_TRUE(average->read(1, 2, two).ok());
  EXPECT_EQ(std::string(two, 3), std::string(reinterpret_cast<const char*>(expected) + 2, 3));
}

TEST(AverageSource, DifferencesMessages) {
  MemorySource a("a"), b("b"), c("c"), d("d");
  a.add<float>("w", Dtype::kFloat32, {1, 2}, {1, 2});
  b.add<float>("w", Dtype::kFloat32, {2}, {1, 2});
  c.add<float>("v", Dtype::kFloat32, {2}, {1, 2});
  d.add<float>("w", Dtype::kFloat32, {2}, {1, 2}).add<float>("v", Dtype::kFloat32, {2}, {1, 2});
  EXPECT_EQ(average_of(a, b).error().describe(), "\"w\" is float32 [1, 2] in \"a\", but float32 [2] in \"b\"");
  EXPECT_EQ(average_of(b, c).error().describe(), "\"b\" has no tensor \"v\", which \"c\" has");
  EXPECT_EQ(average_of(d, b).error().describe(), "\"b\" has no tensor \"v\", which \"d\" has");
}

class WriteSourceTest : public testing::Test {
 protected:
  WriteSourceTest() { folder_ = base::make_unique_directory(testing::TempDir() + "cohort_source_").value(); }
  ~WriteSourceTest() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  static MemorySource source() {
    std::vector<float> many(700'000);
    for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i);
    MemorySource source;
    source.add<float>("layer.weight", Dtype::kFloat32, {1000, 700}, many);
    source.add<int8_t>("odd", Dtype::kInt8, {3}, {1, 2, 3}).add<double>("none", Dtype::kFloat64, {0}, {});
    source.add<uint16_t>("half", Dtype::kFloat16, {2}, {0x3c00, 0x4000});
    return source;
  }
  std::string folder_;
};

TEST_F(WriteSourceTest, EveryFormatThereAndBack) {
  MemorySource from = source();
  from.add_value("lr", PickleValue::of_float(0.5)).add_value("name", PickleValue::of_text("x"));
  from.add_value("betas", PickleValue::tuple({}));
  ASSERT_TRUE(write_pt(from, path("a.pt")).ok());
  ASSERT_TRUE(write_sharded_folder(from, path("folder")).ok());
  ASSERT_TRUE(write_safetensors(from, path("a.safetensors")).ok());
  for (const char* name : {"a.pt", "folder", "a.safetensors"}) {
    const auto back = open_tensor_source(path(name)).value();
    EXPECT_TRUE(compare_sources(from, *back).value().is_same()) << name;
  }
}

TEST_F(WriteSourceTest, AFolderWithOneFileIsThatFile) {
  ASSERT_TRUE(write_safetensors(source(), path("a.safetensors")).ok());
  EXPECT_EQ(open_tensor_source(folder_).value()->path(), path("a.safetensors"));
  ASSERT_TRUE(write_safetensors(source(), path("b.safetensors")).ok());
  EXPECT_FALSE(open_tensor_source(folder_).ok());
}

TEST_F(WriteSourceTest, ChecksumsOfStorages) {
  ASSERT_TRUE(write_pt(source(), path("a.pt")).ok());
  EXPECT_EQ(check_pt_checksums(path("a.pt")).value(), 2'800'000u + 3 + 4);
  // A byte in the middle of the large storage.
  std::fstream(path("a.pt"), std::ios::in | std::ios::out).seekp(1'500'000).put('x');
  EXPECT_THAT(check_pt_checksums(path("a.pt")).error().describe(),
              testing::MatchesRegex("\"" + path("a.pt") +
                                    "\": storage 0 is damaged: its checksum is [0-9a-f]{8}, but the file says "
                                    "[0-9a-f]{8}"));
}

TEST_F(WriteSourceTest, WhatIsNoFileOfTensors) {
  EXPECT_EQ(open_tensor_source(path("nothing")).error().describe(),
            "cannot open \"" + path("nothing") + "\": No such file or directory (ENOENT)");
  std::ofstream(path("text")) << "hello, this is a text";
  EXPECT_FALSE(open_tensor_source(path("text")).ok());
  std::ofstream(path("empty.pt")).close();
  EXPECT_FALSE(open_tensor_source(path("empty.pt")).ok());
}

}  // namespace
}  // namespace cohort::files
