#include "cohort/train/text_split.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <system_error>
#include <unordered_set>

#include "cohort/base/text/text.h"

namespace cohort::train {
namespace {

struct File {
  int64_t begin = 0;
  int64_t end = 0;
  uint64_t hash = 0;
};

// If more than this many times the wanted fraction is held out, the files are too unequal to be split.
constexpr double kMaxExcess = 3.0;

enum class Side : uint8_t { kTrain, kHeldOut, kNone };

// FNV-1a, with a final mix so that its order does not depend on the content.
uint64_t hash_bytes(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3ULL;
  return (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9ULL;
}

std::string read_text(const data::TextCorpus& corpus, int64_t begin, int64_t end) {
  std::string text(static_cast<size_t>(end - begin), '\0');
  corpus.read(begin, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
  return text;
}

std::vector<File> locate_files(const data::TextCorpus& corpus) {
  std::vector<File> files;
  int64_t begin = 0;
  for (const std::string& path : corpus.files()) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    TORCH_CHECK(!error, "[cohort] cannot look at \"", path, "\"\n  caused by: ", base::errno_text(error.value()));
    const int64_t end = begin + static_cast<int64_t>(std::min(size, static_cast<uintmax_t>(corpus.size() - begin)));
    files.push_back({begin, end, hash_bytes(read_text(corpus, begin, end))});
    begin = end;
  }
  TORCH_CHECK(begin == corpus.size(), "[cohort] the files of the text changed while it was being read: they hold ",
              begin, " bytes, ", corpus.size(), " were opened");
  return files;
}

// Holds out a file if its hash, read as a number in [0, 1), is below the fraction, no matter how big the file is.
std::vector<Side> choose_sides(const std::vector<File>& files, double fraction) {
  std::vector<Side> sides;
  std::unordered_set<uint64_t> seen;
  for (const File& file : files) {
    const bool is_new = seen.insert(file.hash ^ static_cast<uint64_t>(file.end - file.begin)).second;
    const bool is_held_out = std::ldexp(static_cast<double>(file.hash >> 11), -53) < fraction;
    sides.push_back(!is_new ? Side::kNone : is_held_out ? Side::kHeldOut : Side::kTrain);
  }
  return sides;
}

// Returns the windows whose every byte, including the last target, is in files of `side`.
std::vector<int64_t> windows_of(const data::TokenDataset& dataset, const std::vector<File>& files,
                                const std::vector<Side>& sides, Side side) {
  const data::TokenDatasetOptions& options = dataset.options();
  std::vector<int64_t> windows;
  size_t file = 0;
  for (int64_t window = 0; window < dataset.size(); ++window) {
    const int64_t begin = window * *options.stride, end = begin + options.context_length + 1;
    while (files[file].end <= begin) ++file;
    bool is_inside = true;
    for (size_t i = file; is_inside && i < files.size() && files[i].begin < end; ++i) is_inside = sides[i] == side;
    if (is_inside) windows.push_back(window);
  }
  return windows;
}

// Holds out the last windows, if files are few or unequal.
void split_by_position(const std::vector<File>& files, const data::TokenDataset& dataset, double fraction,
                       std::vector<int64_t>* train, std::vector<int64_t>* held_out) {
  *train = windows_of(dataset, files, choose_sides(files, 0.0), Side::kTrain);
  const auto count = static_cast<std::ptrdiff_t>(std::ceil(static_cast<double>(train->size()) * fraction));
  held_out->assign(train->end() - count, train->end());
  train->resize(train->size() - static_cast<size_t>(count));
}

}  // namespace

TextSubset::TextSubset(std::shared_ptr<const data::TokenDataset> dataset, std::vector<int64_t> windows)
    : dataset_(std::move(dataset)), windows_(std::move(windows)) {}

TextSubset::Example TextSubset::get(int64_t index) const {
  return dataset_->get(windows_.at(static_cast<size_t>(index)));
}

TextSubset::Example TextSubset::get_batch(const std::vector<int64_t>& indices) const {
  std::vector<int64_t> windows;
  windows.reserve(indices.size());
  for (const int64_t index : indices) windows.push_back(windows_.at(static_cast<size_t>(index)));
  return dataset_->get_batch(windows);
}

TextSubset TextSubset::evenly_spaced(int64_t count) const {
  if (count >= size()) return *this;
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < count; ++i) windows.push_back(windows_[static_cast<size_t>(i * size() / count)]);
  return TextSubset(dataset_, std::move(windows));
}

TextSubset TextSubset::shard(int rank, int world_size) const {
  std::vector<int64_t> windows;
  for (size_t i = static_cast<size_t>(rank); i < windows_.size(); i += static_cast<size_t>(world_size)) {
    windows.push_back(windows_[i]);
  }
  return TextSubset(dataset_, std::move(windows));
}

std::vector<TextSubset::Stretch> TextSubset::stretches(int64_t history) const {
  const int64_t length = dataset_->options().context_length;
  std::vector<Stretch> result;
  for (size_t i = 0; i < windows_.size();) {
    size_t last = i;
    while (last + 1 < windows_.size() && windows_[last + 1] == windows_[last] + 1) ++last;
    const int64_t first_target = windows_[i] * length + 1, end = windows_[last] * length + length + 1;
    const int64_t begin = std::max<int64_t>(0, first_target - std::max<int64_t>(history, 1));
    result.push_back({read_text(dataset_->corpus(), begin, end), static_cast<size_t>(first_target - begin)});
    i = last + 1;
  }
  return result;
}

TextSplit split_text(const std::shared_ptr<const data::TextCorpus>& corpus, int64_t context_length,
                     double held_out_fraction) {
  TORCH_CHECK_VALUE(held_out_fraction > 0 && held_out_fraction < 1,
                    "[cohort] split_text needs 0 < held_out_fraction < 1, but got ", held_out_fraction);
  const auto dataset =
      std::make_shared<const data::TokenDataset>(corpus, data::TokenDatasetOptions{.context_length = context_length});
  const std::vector<File> files = locate_files(*corpus);
  const std::vector<Side> sides = choose_sides(files, held_out_fraction);
  std::vector<int64_t> train = windows_of(*dataset, files, sides, Side::kTrain);
  std::vector<int64_t> held_out = windows_of(*dataset, files, sides, Side::kHeldOut);
  const auto total = static_cast<double>(train.size() + held_out.size());
  if (held_out.empty() || static_cast<double>(held_out.size()) > kMaxExcess * held_out_fraction * total) {
    split_by_position(files, *dataset, held_out_fraction, &train, &held_out);
  }
  TORCH_CHECK_VALUE(!train.empty() && !held_out.empty(), "[cohort] a text of ", corpus->size(), " bytes in ",
                    files.size(), " files is too small to train on and hold out windows of ", context_length,
                    " bytes\n  hint: give more text, or a shorter context");
  return {TextSubset(dataset, std::move(train)), TextSubset(dataset, std::move(held_out)),
          static_cast<int64_t>(files.size()), std::count(sides.begin(), sides.end(), Side::kNone)};
}

}  // namespace cohort::train
