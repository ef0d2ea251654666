// Ranks without processes: a plan, the files it makes, and any parts read back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <numeric>

#include "cohort/files/tensors/dcp/stored_checkpoint.h"
#include "cohort/files/tensors/plan/save_plan.h"
#include "cohort/files/tensors/plan/shard_files.h"
#include "tests/support/temporary_folder.h"

namespace cohort::files {
namespace {

using test::TemporaryFolder;

struct RankPart {
  std::string key;
  std::vector<int64_t> shape;
  Region region;
};

// Elements are `seed` plus their place in the whole.
std::vector<float> elements_of(const std::vector<int64_t>& shape, const Region& region, float seed) {
  std::vector<float> whole(static_cast<size_t>(num_elements(shape)));
  std::iota(whole.begin(), whole.end(), seed);
  std::vector<float> part(static_cast<size_t>(num_elements(region)));
  EXPECT_TRUE(for_each_common_run(whole_region(shape), region, [&](const ElementRun& run) -> base::Result<void> {
                std::copy_n(whole.begin() + run.from, run.count, part.begin() + run.to);
                return {};
              }).ok());
  return part;
}

base::Result<void> save_parts(const std::string& folder, const std::vector<std::vector<RankPart>>& ranks, float seed,
                              const SavePlanOptions& options = {}) {
  std::vector<std::vector<SaveItem>> items(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const RankPart& part : ranks[rank])
      items[rank].push_back({.key = part.key, .shape = part.shape, .region = part.region});
  }
  ShardFiles files(folder, true);
  if (auto done = files.prepare(true); !done) return done;
  SavePlanOptions with_prefix = options;
  with_prefix.prefix = files.free_prefix();
  auto plan = plan_save(items, with_prefix);
  if (!plan) return plan.error();
  if (auto done = files.create(*plan); !done) return done;
  std::vector<std::vector<uint32_t>> checksums(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto own = parse_writes(format_writes(*plan, rank));
    std::vector<std::string> names;
    for (const PlannedFile& file : own->files) names.push_back(file.name);
    PieceWriter writer(folder, names, /*sync=*/true);
    for (const PlannedWrite& write : own->writes[0]) {
      const RankPart& part = ranks[rank][write.item];
      const auto data = elements_of(part.shape, part.region, seed);
      auto checksum = writer.write(write, items[rank][write.item], reinterpret_cast<const char*>(data.data()));
      if (!checksum) return checksum.error();
      checksums[rank].push_back(*checksum);
    }
    if (auto done = writer.finish(); !done) return done;
  }
  if (auto done = add_checksums(items, checksums, *plan); !done) return done;
  return files.commit(*plan);
}

std::vector<std::vector<RankPart>> two_ranks() {
  const Region odd{{{0, 1}, {2, 3}, {4, 5}}, {{0, 6}}};
  const Region even{{{1, 2}, {3, 4}}, {{0, 6}}};
  return {{{"columns", {4, 6}, box_region({0, 0}, {4, 3})}, {"gaps", {5, 6}, odd}, {"both", {7}, whole_region({7})}},
          {{"columns", {4, 6}, box_region({0, 3}, {4, 3})},
           {"gaps", {5, 6}, even},
           {"both", {7}, whole_region({7})},
           {"scalar", {}, {}}}};
}

std::vector<float> read_part(const StoredCheckpoint& checkpoint, const std::string& key, const Region& region) {
  std::vector<float> data(static_cast<size_t>(num_elements(region)), -1);
  CheckpointReader reader(checkpoint);
  const auto done = reader.read(key, region, reinterpret_cast<char*>(data.data()), true);
  EXPECT_TRUE(done.ok()) << done.error().describe();
  EXPECT_EQ(reader.bytes_read(), data.size() * 4);
  return data;
}

std::vector<std::string> listing(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(ShardedFiles, AnyPartComesBackAndNoMoreIsRead) {
  TemporaryFolder folder;
  ASSERT_TRUE(save_parts(folder.path(), two_ranks(), 1, {.num_files = 2}).ok());
  const auto checkpoint = open_stored_checkpoint(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().describe();
  EXPECT_EQ(checkpoint->files.size(), 2u);
  for (const Region& region : {whole_region({5, 6}), box_region({1, 2}, {3, 3}),
                               Region{{{0, 1}, {4, 5}}, {{1, 2}, {5, 6}}}, Region{{}, {{0, 6}}}}) {
    EXPECT_EQ(read_part(*checkpoint, "gaps", region), elements_of({5, 6}, region, 1));
  }
  EXPECT_EQ(read_part(*checkpoint, "columns", whole_region({4, 6})), elements_of({4, 6}, whole_region({4, 6}), 1));
  EXPECT_EQ(read_part(*checkpoint, "scalar", {}), std::vector<float>{1});
  struct stat info {};
  for (const std::string& file : checkpoint->files) {
    stat(file.c_str(), &info);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
  }
}

TEST(ShardedFiles, VerifyCountsEverything) {
  TemporaryFolder folder;
  ASSERT_TRUE(save_parts(folder.path(), two_ranks(), 1).ok());
  const auto report = verify_sharded(folder.path());
  ASSERT_TRUE(report.ok()) << report.error().describe();
  EXPECT_EQ(report->num_tensors, 4u);
  EXPECT_EQ(report->num_bytes, 4u * (24 + 30 + 7 + 1));
  EXPECT_EQ(report->num_checked_bytes, report->num_bytes);
}

TEST(ShardedFiles, TensorsThatAreNoPairsMessage) {
  TemporaryFolder folder;
  ASSERT_TRUE(save_parts(folder.path(), two_ranks(), 1).ok());
  const std::string path = folder / kCheckpointIndexName;
  auto index = parse_checkpoint_index(base::read_file(path).value());
  ASSERT_TRUE(index.ok());
  index->complex128 = {"columns"};
  std::ofstream(path) << format_checkpoint_index(*index).value();
  const auto checkpoint = open_stored_checkpoint(folder.path());
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_EQ(
      checkpoint.error().describe(),
      "the index says that \"columns\" is complex128, but its file does not have it as F64 with a last dimension of 2");
}

void flip_byte(const std::string& path, int64_t from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-from_end, std::ios::end);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(-from_end, std::ios::end);
  file.put(byte);
}

TEST(ShardedFiles, EachByteIsChecked) {
  TemporaryFolder folder;
  ASSERT_TRUE(save_parts(folder.path(), two_ranks(), 1).ok());
  const std::string file = folder / "model-00001-of-00001.safetensors";
  const auto size = static_cast<int64_t>(std::filesystem::file_size(file));
  for (int64_t place = 1; place <= size; ++place) {
    flip_byte(file, place);
    EXPECT_FALSE(verify_sharded(folder.path()).ok()) << place;
    flip_byte(file, place);
  }
  EXPECT_TRUE(verify_sharded(folder.path()).ok());
  flip_byte(file, 1);  // of "scalar", the last
  const auto checkpoint = open_stored_checkpoint(folder.path());
  CheckpointReader reader(*checkpoint);
  float value = 0;
  EXPECT_EQ(reader.read("scalar", {}, reinterpret_cast<char*>(&value), true).error().describe(),
            "tensor \"scalar\": the bytes of [] do not match their checksum: the checkpoint is damaged");
  EXPECT_TRUE(reader.read("scalar", {}, reinterpret_cast<char*>(&value), false).ok());
}

// More than one piece, and less than one, is read.
TEST(ShardedFiles, PiecesInsideOfWhatIsRead) {
  TemporaryFolder folder;
  ASSERT_TRUE(save_parts(folder.path(), {two_ranks()[0], {two_ranks()[1][0], two_ranks()[1][1]}}, 1).ok());
  const std::string file = folder / "model-00001-of-00001.safetensors";
  const auto checkpoint = open_stored_checkpoint(folder.path());
  CheckpointReader reader(*checkpoint);
  std::vector<float> data(30);
  const auto read = [&](const Region& region) {
    return reader.read("gaps", region, reinterpret_cast<char*>(data.data()), true);
  };
  const auto place =
      static_cast<int64_t>(std::filesystem::file_size(file) - checkpoint->tensors.at("gaps").chunks[0].offset);
  flip_byte(file, place - 6 * 4);  // in row 1
  EXPECT_FALSE(read(whole_region({5, 6})).ok());
  EXPECT_TRUE(read(box_region({0, 0}, {2, 6})).ok());  // no piece as a whole
  EXPECT_TRUE(read({{{0, 1}, {2, 3}, {4, 5}}, {{0, 6}}}).ok());
}

TEST(ShardedFiles, ANewOneTakesTheOldOnesPlaceAtTheEnd) {
  TemporaryFolder folder;
  ASSERT_TRUE(save_parts(folder.path(), two_ranks(), 1).ok());
  // One that fails: parts that overlap, then a file that vanishes while it is written.
  auto broken = two_ranks();
  broken[1][0].region = broken[0][0].region;
  EXPECT_FALSE(save_parts(folder.path(), broken, 2).ok());
  std::ofstream(folder / "model_9-00001-of-00001.safetensors.unfinished") << "left by a rank that was killed";
  EXPECT_EQ(read_part(*open_stored_checkpoint(folder.path()), "scalar", {}), std::vector<float>{1});
  ASSERT_TRUE(save_parts(folder.path(), two_ranks(), 3).ok());
  EXPECT_EQ(read_part(*open_stored_checkpoint(folder.path()), "scalar", {}), std::vector<float>{3});
  EXPECT_EQ(listing(folder.path()),
            (std::vector<std::string>{"model.safetensors.index.json", "model_2-00001-of-00001.safetensors"}));
}

TEST(ShardedFiles, AFailedSaveLeavesNothing) {
  TemporaryFolder folder;
  const auto plan = plan_save({{{.key = "w", .shape = {4}, .region = whole_region({4})}}});
  {
    ShardFiles given_up(folder.path(), true);
    ASSERT_TRUE(given_up.prepare(true).ok() && given_up.create(*plan).ok());
    EXPECT_EQ(listing(folder.path()).size(), 1u);
  }
  EXPECT_TRUE(listing(folder.path()).empty());
  {
    ShardFiles files(folder.path(), true);
    ASSERT_TRUE(files.prepare(true).ok());
    ASSERT_TRUE(files.create(*plan).ok());
    EXPECT_EQ(listing(folder.path()), std::vector<std::string>{"model-00001-of-00001.safetensors.unfinished"});
    EXPECT_EQ(open_stored_checkpoint(folder.path()).error().describe(),
              "\"" + folder.path() +
                  "\" is an unfinished checkpoint: it has 1 file with data, but neither "
                  "model.safetensors.index.json nor .metadata, which are written last\n"
                  "  hint: saving it was interrupted; load an older checkpoint, and delete this folder");
    std::filesystem::remove(folder / "model-00001-of-00001.safetensors.unfinished");
    PieceWriter writer(folder.path(), {plan->files[0].name}, /*sync=*/true);
    EXPECT_EQ(writer.write({0, 0, 0}, {}, "").error().describe(),
              "cannot open \"" + folder.path() +
                  "/model-00001-of-00001.safetensors.unfinished\": No such file or directory (ENOENT)\n"
                  "  hint: save to a folder that the hosts of all ranks share");
    EXPECT_THAT(files.commit(*plan).error().describe(), testing::HasSubstr("No such file or directory (ENOENT)"));
  }
  EXPECT_TRUE(listing(folder.path()).empty());
}

TEST(ShardedFiles, SizesThatDoNotAddUpAreTheLargestNumberMessage) {
  StoredCheckpoint checkpoint;
  checkpoint.tensors["small"].shape = {2};
  EXPECT_EQ(checkpoint.num_bytes(), 8u);
  checkpoint.tensors["huge"].shape = {INT64_MAX};
  EXPECT_EQ(checkpoint.num_bytes(), UINT64_MAX);
  const TemporaryFolder folder;
  ShardFiles files(folder.path(), false);
  SavePlan plan;
  plan.files = {{.name = "a", .num_bytes = UINT64_MAX}, {.name = "b", .num_bytes = 2}};
  EXPECT_EQ(files.create(plan).error().message(),
            "cannot take 16.0 EiB for 2 files in \"" + folder.path() + "\": No space left on device (ENOSPC)");
  EXPECT_TRUE(listing(folder.path()).empty());
}

TEST(ShardedFiles, OpeningRefusalsMessage) {
  TemporaryFolder folder;
  const std::string& path = folder.path();
  EXPECT_EQ(open_stored_checkpoint(path + "/none").error().describe(), "there is nothing at \"" + path + "/none\"");
  EXPECT_EQ(open_stored_checkpoint(path).error().describe(),
            "\"" + path + "\" holds no checkpoint: it has neither model.safetensors.index.json nor .metadata");
  ASSERT_TRUE(save_parts(path, two_ranks(), 1).ok());
  const std::string file = path + "/model-00001-of-00001.safetensors";
  const auto size = std::filesystem::file_size(file);
  std::filesystem::resize_file(file, size - 1);
  EXPECT_THAT(open_stored_checkpoint(path).error().describe(),
              testing::HasSubstr("cannot read \"" + file + "\", which the index names"));
  std::filesystem::remove(file);
  EXPECT_EQ(open_stored_checkpoint(path).error().describe(),
            "cannot read \"" + file + "\", which the index names\n  caused by: No such file or directory (ENOENT)");
  ShardFiles files(path, false);
  EXPECT_EQ(files.prepare(false).error().describe(),
            "there is a checkpoint in \"" + path + "\" already\n  hint: give another folder, or set overwrite");
}

}  // namespace
}  // namespace cohort::files
