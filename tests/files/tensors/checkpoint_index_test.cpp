#include "cohort/files/tensors/plan/checkpoint_index.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace cohort::files {
namespace {

CheckpointIndex example_index() {
  CheckpointIndex index{.files = {{"a.safetensors", 100, 7}, {"b.safetensors", 200, 8}},
                        .file_of = {{"w", 0}, {"v.é", 1}},
                        .total_size = 250,
                        .is_ours = true};
  index.pieces["w"] = {{box_region({0, 0}, {2, 2}), 4'000'000'000}, {{{{2, 4}}, {{0, 1}, {2, 4}}}, 1}};
  index.complex128 = {"w"};
  index.values["step"] = 3;
  index.metadata["note"] = "x";
  return index;
}

std::string problem(const std::string& text) {
  const auto index = parse_checkpoint_index(text);
  return index ? "none" : index.error().describe();
}

TEST(CheckpointIndex, ReadsWhatItWrites) {
  const auto text = format_checkpoint_index(example_index());
  ASSERT_TRUE(text.ok());
  const auto index = parse_checkpoint_index(*text);
  ASSERT_TRUE(index.ok()) << index.error().describe();
  EXPECT_TRUE(index->is_ours);
  EXPECT_EQ(index->total_size, 250u);
  EXPECT_EQ(index->files[index->file_of.at("w")].name, "a.safetensors");
  EXPECT_EQ(index->files[index->file_of.at("v.é")].num_bytes, 200u);
  EXPECT_EQ(index->files[index->file_of.at("v.é")].header_crc32, 8u);
  ASSERT_EQ(index->pieces.at("w").size(), 2u);
  EXPECT_EQ(index->pieces.at("w")[0].crc32, 4'000'000'000u);
  EXPECT_EQ(index->pieces.at("w")[1].region, (Region{{{2, 4}}, {{0, 1}, {2, 4}}}));
  EXPECT_EQ(index->complex128, std::set<std::string>{"w"});
  EXPECT_EQ(index->values.at("step"), Json(3));
  EXPECT_EQ(index->metadata.at("note"), "x");
}

// What transformers writes: a total in floating point is no error, nor are keys that we do not know.
TEST(CheckpointIndex, OfOthers) {
  const auto index = parse_checkpoint_index(
      R"({"metadata":{"total_size":1e3,"total_parameters":4},"weight_map":{"a":"model-00001-of-00002.safetensors"},"x":[]})");
  ASSERT_TRUE(index.ok());
  EXPECT_FALSE(index->is_ours);
  EXPECT_EQ(index->files[0].name, "model-00001-of-00002.safetensors");
  EXPECT_TRUE(parse_checkpoint_index(R"({"weight_map":{}})").ok());
}

TEST(CheckpointIndex, NamesThatLeaveTheFolder) {
  const auto of = [](const std::string& name) { return problem(R"({"weight_map":{"a":")" + name + "\"}}"); };
  EXPECT_EQ(of("../x"), "weight_map: the file of \"a\", \"../x\", is not in the same folder");
  EXPECT_EQ(of("/etc/passwd"), "weight_map: the file of \"a\", \"/etc/passwd\", is not in the same folder");
  EXPECT_EQ(of(".."), "weight_map: the file of \"a\", \"..\", is not the name of a file");
  EXPECT_EQ(of(""), "weight_map: the file of \"a\", \"\", is not the name of a file");
  EXPECT_TRUE(of("a\\u0000b").ends_with("has a zero byte"));
}

TEST(CheckpointIndex, MalformedMessage) {
  EXPECT_EQ(problem("[]"), "the index does not begin with {");
  EXPECT_EQ(problem("{}"), "the index has no weight_map");
  EXPECT_EQ(problem(R"({"weight_map":{"a":1}})"), "weight_map: the file of \"a\" is not a text");
  EXPECT_EQ(problem(R"({"weight_map":{"a":"x","a":"y"}})"), "the key \"a\" comes twice");
  EXPECT_EQ(problem(R"({"weight_map":{},"metadata":3})"), "the metadata of the index are not an object");
  EXPECT_EQ(problem(R"({"weight_map":{},"metadata":{"cohort":3}})"),
            "the part \"cohort\" of the index is not an object");
  EXPECT_EQ(problem(R"({"weight_map":{},"metadata":{"cohort":{}}})"),
            "the part \"cohort\" of the index \"crc32\" is not a whole number in its range");
  EXPECT_EQ(problem(R"({"weight_map":{},"metadata":{"cohort":{"crc32":1,"version":99}}})"),
            "the part \"cohort\" of the index has version 99, this library knows versions up to 1\n"
            "  hint: load it with the release of Cohort that wrote it, or a newer one");
}

TEST(CheckpointIndex, ComplexTensorsThatAreNotThereMessage) {
  auto index = example_index();
  index.complex128 = {"x"};
  EXPECT_EQ(problem(*format_checkpoint_index(index)),
            "the part \"cohort\" of the index says that \"x\" is complex128, which is not a tensor of the checkpoint");
}

// One digit of a value, or the file of a tensor.
TEST(CheckpointIndex, DamageIsSeen) {
  const std::string text = *format_checkpoint_index(example_index());
  const std::string message = "the part \"cohort\" of the index does not match its checksum: the file is damaged";
  std::string other = text;
  other.replace(other.find("\"step\": 3"), 9, "\"step\": 4");
  EXPECT_EQ(problem(other), message);
  other = text;
  other.replace(other.find("\"w\": \"a"), 7, "\"w\": \"b");
  EXPECT_EQ(problem(other), message);
}

}  // namespace
}  // namespace cohort::files
