#include "cohort/files/tensors/plan/save_plan.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "cohort/files/tensors/safetensors/safetensors_header.h"

namespace cohort::files {
namespace {

SaveItem whole_item(const std::string& key, std::vector<int64_t> shape) {
  return {.key = key, .shape = shape, .region = whole_region(shape)};
}
SaveItem rows_item(const std::string& key, std::vector<int64_t> shape, int64_t begin, int64_t end) {
  SaveItem item = whole_item(key, shape);
  item.region[0] = begin < end ? IndexRanges{{begin, end}} : IndexRanges{};
  return item;
}

using Items = std::vector<std::vector<SaveItem>>;

std::string plan_problem(const Items& items) {
  const auto plan = plan_save(items);
  return plan ? "none" : plan.error().describe();
}

uint64_t load_of(const SavePlan& plan, const Items& items, size_t rank) {
  uint64_t sum = 0;
  for (const PlannedWrite& write : plan.writes[rank]) sum += num_elements(items[rank][write.item].region) * 4;
  return sum;
}

TEST(SavePlan, ReplicatedTensorsOnceAndBalanced) {
  Items items(4);
  for (auto& rank : items) {
    for (int i = 0; i < 40; ++i) rank.push_back(whole_item("t" + std::to_string(i), {100 + 7 * i}));
  }
  items[2].push_back(whole_item("only.here", {3000}));
  const auto plan = plan_save(items, {.num_files = 4});
  ASSERT_TRUE(plan.ok());
  uint64_t total = 0;
  for (size_t rank = 0; rank < 4; ++rank) {
    const uint64_t load = load_of(*plan, items, rank);
    EXPECT_NEAR(static_cast<double>(load), 4.0 * (40 * 100 + 7 * 39 * 20 + 3000) / 4, 1000) << rank;
    total += load;
  }
  EXPECT_EQ(total, 4u * (40 * 100 + 7 * 39 * 20 + 3000));
  EXPECT_EQ(plan->index.total_size, total);
  // A rank writes to its own file only.
  for (size_t rank = 0; rank < 4; ++rank) {
    for (const PlannedWrite& write : plan->writes[rank]) EXPECT_EQ(write.file, rank);
  }
  const auto again = plan_save(items, {.num_files = 4});
  EXPECT_EQ(format_writes(*plan, 1), format_writes(*again, 1));
}

TEST(SavePlan, PartsOfSeveralHoldersAreWrittenOnce) {
  // Two replicas of two shards, as HSDP has them.
  Items items;
  for (int rank = 0; rank < 4; ++rank) {
    items.push_back({rows_item("a", {4, 2}, 2 * (rank % 2), 2 * (rank % 2) + 2),
                     rows_item("b", {4, 2}, 2 * (rank % 2), 2 * (rank % 2) + 2)});
  }
  const auto plan = plan_save(items);
  ASSERT_TRUE(plan.ok());
  for (const auto& writes : plan->writes) EXPECT_EQ(writes.size(), 1u);
}

TEST(SavePlan, WideComplexNumbersAreWrittenAsPairs) {
  SaveItem item = whole_item("w", {3, 4});
  item.dtype = Dtype::kComplex128;
  const auto plan = plan_save({{item}, {whole_item("v", {2})}});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->index.complex128, std::set<std::string>{"w"});
  const auto header = parse_safetensors_header(std::string_view(plan->files[0].prefix).substr(8), 12 * 16 + 8);
  ASSERT_TRUE(header.ok()) << header.error().describe();
  const auto& entry = header->entries[0].name == "w" ? header->entries[0] : header->entries[1];
  EXPECT_EQ(entry.dtype, Dtype::kFloat64);
  EXPECT_EQ(entry.shape, (std::vector<int64_t>{3, 4, 2}));
}

TEST(SavePlan, FilesKeepTheirLimit) {
  Items items(1);
  for (int i = 0; i < 10; ++i) items[0].push_back(whole_item("t" + std::to_string(i), {30}));
  items[0].push_back(whole_item("large", {1000}));
  const auto plan = plan_save(items, {.max_file_bytes = 400});
  ASSERT_TRUE(plan.ok());
  for (const PlannedFile& file : plan->files) {
    const uint64_t data = file.num_bytes - file.prefix.size();
    EXPECT_TRUE(data <= 400 || data == 4000) << data;
  }
  EXPECT_EQ(plan->files[0].name, "model-00001-of-" + std::string(plan->files.size() < 10 ? "0000" : "000") +
                                     std::to_string(plan->files.size()) + ".safetensors");
}

TEST(SavePlan, ValuesOfTheLowestRank) {
  Items items(2);
  items[0].push_back({.key = "step", .is_tensor = false, .value = 3});
  items[1].push_back({.key = "step", .is_tensor = false, .value = 4});
  items[1].push_back({.key = "other", .is_tensor = false, .value = 5});
  const auto plan = plan_save(items);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->index.values.at("step"), Json(3));
  EXPECT_EQ(plan->index.values.at("other"), Json(5));
  EXPECT_TRUE(plan->files.empty());
}

TEST(SavePlan, RefusalsMessage) {
  const std::string hint =
      "\n  hint: give parts that together have each element; parts of several ranks must be equal or disjoint";
  EXPECT_EQ(plan_problem({{whole_item("w", {2, 3})}, {whole_item("w", {3, 2})}}),
            "key \"w\" is float32 [2, 3] on rank 0, but float32 [3, 2] on rank 1\n"
            "  hint: use different keys for tensors that differ between ranks, such as keys with the rank in them");
  EXPECT_EQ(plan_problem({{whole_item("w", {2})}, {{.key = "w", .is_tensor = false}}}),
            "key \"w\" is float32 [2] on rank 0, but a value on rank 1\n"
            "  hint: use different keys for tensors that differ between ranks, such as keys with the rank in them");
  EXPECT_EQ(plan_problem({{rows_item("w", {4}, 0, 2)}, {rows_item("w", {4}, 1, 4)}}),
            "key \"w\", float32 [4], which ranks 0 and 1 have: parts overlap: [0:2] and [1:4]" + hint);
  EXPECT_EQ(plan_problem({{rows_item("w", {4}, 0, 2)}, {}}),
            "key \"w\", float32 [4], which rank 0 has: parts have 2 of 4 elements" + hint);
  EXPECT_EQ(plan_problem({{rows_item("w", {4}, 3, 3)}}),
            "key \"w\", float32 [4], which no rank has: parts have 0 of 4 elements" + hint);
  EXPECT_EQ(plan_problem({{rows_item("w", {4}, 3, 9)}}),
            "key \"w\" of rank 0\n  caused by: [3:9] does not lie in the tensor: dimension 0 has 4 indices");
}

TEST(SavePlan, MessagesArriveAsTheyWere) {
  std::vector<SaveItem> items{whole_item("a", {2, 3}),
                              {.key = "é", .is_tensor = false, .value = Json::parse(R"([1,{"tuple":[]}])")},
                              whole_item("scalar", {})};
  items[0].region[1] = {{0, 1}, {2, 3}};
  items[0].dtype = Dtype::kBFloat16;
  const auto back = parse_items(*format_items(items));
  ASSERT_TRUE(back.ok());
  ASSERT_EQ(back->size(), 3u);
  EXPECT_EQ((*back)[0].region, items[0].region);
  EXPECT_EQ((*back)[0].shape, items[0].shape);
  EXPECT_EQ((*back)[0].dtype, Dtype::kBFloat16);
  EXPECT_FALSE((*back)[1].is_tensor);
  EXPECT_EQ((*back)[1].value, items[1].value);
  EXPECT_TRUE((*back)[2].region.empty());
  EXPECT_FALSE(parse_items("[[1]]").ok());
  EXPECT_FALSE(parse_writes("{}").ok());
  items[0].key = "\xff";
  EXPECT_FALSE(format_items(items).ok());
}

}  // namespace
}  // namespace cohort::files
