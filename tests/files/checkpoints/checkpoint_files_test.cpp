// Names, manifests and rules of retention: what needs no disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/base/text/text.h"
#include "cohort/files/checkpoints/checkpoint_name.h"
#include "cohort/files/checkpoints/manifest.h"
#include "cohort/files/checkpoints/retention.h"

namespace cohort::files {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(CheckpointName, ThereAndBack) {
  EXPECT_EQ(checkpoint_name(1200), "step-00001200");
  EXPECT_EQ(checkpoint_name(123456789012), "step-123456789012");
  for (const int64_t step : {int64_t{0}, int64_t{7}, int64_t{99999999}, int64_t{100000000}, INT64_MAX}) {
    EXPECT_EQ(step_of_checkpoint(checkpoint_name(step)), step);
  }
  for (const char* name :
       {"", "step-", "step-7", "step-0000007", "step-000000007", "step-0000000x", "step--0000007",
        ".saving-step-00000007-12", "step-00000007 ", "xstep-00000007", "step-99999999999999999999"}) {
    EXPECT_EQ(step_of_checkpoint(name), std::nullopt) << name;
  }
}

TEST(CheckpointName, TemporaryOnesDiffer) {
  const auto name = temporary_checkpoint_name(kSavingPrefix, 12);
  EXPECT_TRUE(name.starts_with(".saving-step-00000012-")) << name;
  EXPECT_NE(name, temporary_checkpoint_name(kSavingPrefix, 12));
}

Manifest example_manifest() {
  return {.step = 1200,
          .saved_at = 1'700'000'000,
          .num_ranks = 2,
          .metric = 0.25,
          .metadata = {{"run", "a \"b\""}},
          .files = {{.name = "model.safetensors", .size = uint64_t{5} << 30, .crc32 = 0xffffffff},
                    {.name = "more/rank-1", .size = 0, .crc32 = 0}}};
}

TEST(Manifest, ThereAndBack) {
  const Manifest manifest = example_manifest();
  EXPECT_EQ(parse_manifest(format_manifest(manifest)).value(), manifest);
  EXPECT_EQ(manifest.num_bytes(), uint64_t{5} << 30);
  Manifest without = manifest;
  without.metric = std::nan("");
  EXPECT_EQ(parse_manifest(format_manifest(without)).value().metric, std::nullopt);
}

TEST(Manifest, NoticesEveryChangedCharacter) {
  const std::string text = format_manifest(example_manifest());
  for (size_t i = 0; i < text.size(); ++i) {
    if (std::isspace(static_cast<unsigned char>(text[i]))) continue;
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(parse_manifest(changed).ok()) << "at " << i << ": " << changed;
    EXPECT_FALSE(parse_manifest(text.substr(0, i)).ok()) << "cut at " << i;
  }
}

std::string problem_of(const std::string& text) { return parse_manifest(text).error().describe(); }

// The text of a manifest in which one thing is another.
std::string example_with(const std::string& from, const std::string& to) {
  return base::replace_all(format_manifest(example_manifest()), from, to);
}

TEST(Manifest, ErrorsSayWhatIsWrong) {
  const std::string prefix = "it is not a manifest of a checkpoint: ";
  EXPECT_EQ(problem_of(""), prefix + "it is not a JSON object");
  EXPECT_EQ(problem_of("[]"), prefix + "it is not a JSON object");
  EXPECT_EQ(problem_of("{}"), prefix + "it has no \"format\": \"cohort checkpoint\"");
  EXPECT_EQ(problem_of(std::string(100000, '[')), prefix + "its lists are nested too deep");
  EXPECT_EQ(problem_of(example_with("\"version\": 1", "\"version\": 2")),
            "it was written by a version of Cohort that is newer than this one\n"
            "  hint: read it with the version that wrote it");
  EXPECT_EQ(problem_of(example_with("\"step\": 1200", "\"step\": -1")), prefix + "it has no number \"step\"");
  EXPECT_EQ(problem_of(example_with("\"step\": 1200", "\"step\": 9223372036854775808")),
            prefix + "\"step\" is 9223372036854775808, which is too large");
  EXPECT_EQ(problem_of(example_with("more/rank-1", "../rank-1")),
            prefix + "\"../rank-1\" is not a name of a file inside its folder");
  EXPECT_EQ(problem_of(example_with("more/rank-1", "/etc/passwd")),
            prefix + "\"/etc/passwd\" is not a name of a file inside its folder");
  EXPECT_EQ(problem_of(example_with("more/rank-1", "model.safetensors")),
            prefix + "it has \"model.safetensors\" twice");
  EXPECT_EQ(problem_of(example_with("1200", "1201")), "the manifest does not match its checksum");
}

std::vector<SavedStep> steps(const std::vector<int64_t>& numbers) {
  std::vector<SavedStep> saved;
  for (const int64_t step : numbers) saved.push_back({.step = step, .metric = {}});
  return saved;
}

TEST(Retention, KeepsTheLast) {
  EXPECT_THAT(steps_to_remove(steps({30, 10, 20, 40}), {.keep_last = 2}), ElementsAre(10, 20));
  EXPECT_THAT(steps_to_remove(steps({10, 20}), {.keep_last = 2}), IsEmpty());
  EXPECT_THAT(steps_to_remove(steps({10, 20, 30}), {}), IsEmpty());
}

TEST(Retention, KeepsMultiplesForEver) {
  EXPECT_THAT(steps_to_remove(steps({0, 50, 100, 150, 200, 250}), {.keep_last = 1, .keep_every = 100}),
              ElementsAre(50, 150));
}

TEST(Retention, KeepsTheBest) {
  const std::vector<SavedStep> saved = {{1, 0.5}, {2, 0.1}, {3, 0.3}, {4, {}}, {5, std::nan("")}, {6, 0.9}};
  EXPECT_THAT(steps_to_remove(saved, {.keep_last = 1, .keep_best = 2}), ElementsAre(1, 4, 5));
  EXPECT_THAT(steps_to_remove(saved, {.keep_last = 1, .keep_best = 2, .highest_is_best = true}),
              ElementsAre(2, 3, 4, 5));
  // Of equal ones the newer.
  EXPECT_THAT(steps_to_remove({{1, 0.5}, {2, 0.5}, {3, 0.9}}, {.keep_last = 1, .keep_best = 1}), ElementsAre(1));
}

}  // namespace
}  // namespace cohort::files
