// Reads files of arrays and writes what it found. Each line of standard input is a request, its words parted by tabs; the
// answer is "ok", or the error on one line:
//   npy IN OUT               load_npy, then save_npy
//   npz IN FOLDER            each array of the archive as FOLDER/NAME.npy
//   rows IN OUT INDEX ...    the rows of a NumpyDataset, as one batch
//   idx IMAGES LABELS OUT    OUT/images.npy and OUT/labels.npy: all of an IdxDataset, as one batch
//   mnist ROOT TRAIN OUT     the same
//   csv IN LABEL OUT         OUT/features.npy and OUT/labels.npy; features are double
//   tokens IN LENGTH STRIDE FORMAT OUT   OUT/inputs.npy and OUT/targets.npy; FORMAT is that of TokenFileFormat, as a number
#include <c10/util/Exception.h>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cohort/data/datasets/token_file_dataset.h"
#include "cohort/extras/data/datasets/csv_dataset.h"
#include "cohort/extras/data/datasets/idx_dataset.h"
#include "cohort/extras/data/datasets/numpy_dataset.h"
#include "cohort/extras/data/datasets/numpy_files.h"

namespace {

using namespace cohort::data;
using Words = std::vector<std::string>;

template <typename Dataset>
void save_all(const Dataset& dataset, const std::string& folder, const std::string& first, const std::string& second) {
  std::vector<int64_t> indices(static_cast<size_t>(dataset.size()));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  const auto [a, b] = dataset.get_batch(indices);
  save_npy(folder + "/" + first + ".npy", a);
  save_npy(folder + "/" + second + ".npy", b);
}

void npz(const Words& words) {
  for (const auto& [name, tensor] : load_npz(words.at(1))) save_npy(words.at(2) + "/" + name + ".npy", tensor);
}

void rows(const Words& words) {
  std::vector<int64_t> indices;
  for (size_t i = 3; i < words.size(); ++i) indices.push_back(std::stoll(words[i]));
  save_npy(words.at(2), std::get<0>(NumpyDataset(words.at(1)).get_batch(indices)));
}

void tokens(const Words& words) {
  const int64_t stride = std::stoll(words.at(3));  // 0: absent
  const TokenFileOptions options{.context_length = std::stoll(words.at(2)),
                                 .stride = stride > 0 ? std::optional(stride) : std::nullopt,
                                 .format = static_cast<TokenFileFormat>(std::stoi(words.at(4)))};
  save_all(TokenFileDataset(words.at(1), options), words.at(5), "inputs", "targets");
}

void run(const Words& words) {
  const std::string& what = words.at(0);
  if (what == "npy") return save_npy(words.at(2), load_npy(words.at(1)));
  if (what == "npz") return npz(words);
  if (what == "rows") return rows(words);
  if (what == "idx") return save_all(IdxDataset(words.at(1), words.at(2)), words.at(3), "images", "labels");
  if (what == "mnist") {
    return save_all(MNIST(words.at(1), {.train = words.at(2) == "1"}), words.at(3), "images", "labels");
  }
  if (what == "csv") {
    return save_all(CsvDataset(words.at(1), {.labels = {words.at(2)}, .dtype = at::kDouble}), words.at(3), "features",
                    "labels");
  }
  if (what == "tokens") return tokens(words);
  throw std::runtime_error("unknown: " + what);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    Words words;
    for (size_t begin = 0; begin <= line.size();) {
      const size_t end = std::min(line.find('\t', begin), line.size());
      words.push_back(line.substr(begin, end - begin));
      begin = end + 1;
    }
    try {
      run(words);
      std::cout << "ok" << std::endl;
    } catch (const c10::Error& error) {
      std::string text = error.what_without_backtrace();
      for (char& c : text) c = c == '\n' ? ' ' : c;
      std::cout << text << std::endl;
    }
  }
  return 0;
}
