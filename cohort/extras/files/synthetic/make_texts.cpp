// Texts of simple sentences, as bytes or as tokens, and tables of numbers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "cohort/extras/files/synthetic/making.h"

namespace cohort::files {
namespace {

std::string sentence(SampleGenerator& random) {
  const char* const things[] = {"cat", "dog", "bird", "child", "sailor", "king", "river", "moon"};
  const char* const adjectives[] = {"small", "old", "red", "quiet", "happy", "tired"};
  const char* const verbs[] = {"sees", "follows", "calls", "finds", "loves"};
  const auto one_of = [&](const auto& words) { return words[random.below(static_cast<int>(std::size(words)))]; };
  const auto noun = [&] { return fmt::format("the {} {}", one_of(adjectives), one_of(things)); };
  const std::string subject = noun();
  const std::string verb = one_of(verbs);
  return fmt::format("{} {} {}.\n", subject, verb, noun());
}

// Returns whole sentences, truncated to the number of bytes.
base::Result<std::string> sentences(const Making& making, SetPart part) {
  const auto count = static_cast<size_t>(making.num_samples(part));
  std::string text;
  for (int64_t i = 0; text.size() < count; ++i) {
    auto random = making.sample(part, i);
    if (!random) return Making::stopped();
    text += sentence(*random);
  }
  text.resize(count);
  return text;
}

base::Result<void> put_tokens(const Making& making, SetPart part, const std::string& name) {
  const auto text = sentences(making, part);
  if (!text) return text.error();
  std::string tokens;  // two bytes each, little-endian
  for (const char letter : *text) (tokens += letter) += '\0';
  return making.put(name, tokens);
}

constexpr int kColumns = 8;
constexpr int kTableClasses = 3;

// The label is the class whose direction is nearest to the point; directions are the same in all datasets.
std::string table_row(SampleGenerator& random) {
  std::array<double, kColumns> values{};
  std::array<double, kTableClasses> scores{};
  std::string row;
  for (int i = 0; i < kColumns; ++i) {
    values[i] = random.uniform(-1, 1);
    for (int k = 0; k < kTableClasses; ++k) scores[k] += values[i] * ((i * 5 + k * 3) % 7 - 3);
    row += fmt::format("{:.4f},", values[i]);
  }
  for (double& score : scores) score += random.uniform(-0.2, 0.2);
  const auto label = std::max_element(scores.begin(), scores.end()) - scores.begin();
  return row + fmt::format("{}\n", label);
}

base::Result<void> put_table(const Making& making, SetPart part, const std::string& name) {
  std::string table;
  for (int i = 0; i < kColumns; ++i) table += fmt::format("x{},", i);
  table += "label\n";
  for (int64_t i = 0; i < making.num_samples(part); ++i) {
    auto random = making.sample(part, i);
    if (!random) return Making::stopped();
    table += table_row(*random);
  }
  return making.put(name, table);
}

}  // namespace

base::Result<void> make_tokens(const Making& making) {
  if (auto put = put_tokens(making, SetPart::kTrain, "train.bin"); !put) return put;
  return put_tokens(making, SetPart::kTest, "val.bin");
}

base::Result<void> make_text(const Making& making) {
  const auto text = sentences(making, SetPart::kTrain);
  if (!text) return text.error();
  return making.put("input.txt", *text);
}

base::Result<void> make_csv(const Making& making) {
  if (auto put = put_table(making, SetPart::kTrain, "train.csv"); !put) return put;
  return put_table(making, SetPart::kTest, "test.csv");
}

}  // namespace cohort::files
