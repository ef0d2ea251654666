/// CsvDataset and CsvStream: rows of a CSV file as examples, with features and labels from the columns of these names.
///
///     CsvDataset iris("iris.csv", {.labels = {"species"}, .label_type = CsvLabelType::kClassNames});
///     DataLoader loader(iris, {.batch_size = 16, .shuffle = true});
///     for (auto& [features, labels] : loader) ...   // float [16, 4], int64 [16]
///     CsvStream stream("larger_than_memory.csv", {.labels = {"z"}, .label_type = CsvLabelType::kNumber});
///
/// RFC 4180 with a header, CRLF or LF (cohort/extras/files/arrays/csv_reader.h): rows with missing fields, and fields that are no
/// number where one is expected, are errors that name the file, the line, the column and its text.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/export.h"

namespace cohort::data {

enum class CsvLabelType {
  kInteger,    ///< int64
  kNumber,     ///< of CsvOptions::dtype
  kClassNames  ///< any text; the label is the place of it in the classes, int64
};

struct CsvOptions {
  /// Names of columns, all of numbers. Empty: every column that is no label.
  std::vector<std::string> features = {};
  std::vector<std::string> labels = {};
  CsvLabelType label_type = CsvLabelType::kInteger;
  /// For kClassNames; another name in the file is an error. Empty: all names in the file, sorted (for CsvDataset only).
  std::vector<std::string> classes = {};
  /// Of the features: at::kFloat or at::kDouble.
  at::ScalarType dtype = at::kFloat;
  char delimiter = ',';
  char quote = '"';
  /// The first record names the columns. Without, they are called "0", "1", "2" and so on.
  bool has_header = true;
};

/// (features, labels): [features], and a scalar for one column of labels, [labels] for any other number of them.
using CsvExample = std::pair<at::Tensor, at::Tensor>;

/// The whole file, in memory once it is open: as much as its numbers take.
///
/// Thread-safety: const; any number of threads may read.
class COHORT_API CsvDataset {
 public:
  /// Throws c10::ValueError for options that contradict each other, c10::Error for a file that is missing or wrong.
  explicit CsvDataset(const std::string& path, const CsvOptions& options = {});

  /// Throws c10::IndexError outside [0, size() - 1].
  CsvExample get(int64_t index) const;
  /// The rows of a whole batch, stacked.
  CsvExample get_batch(const std::vector<int64_t>& indices) const;
  int64_t size() const { return features_.size(0); }

  const std::vector<std::string>& feature_names() const { return feature_names_; }
  /// What label i means; empty unless the labels are class names.
  const std::vector<std::string>& classes() const { return classes_; }
  /// All of them: [size, features] and [size] or [size, labels].
  const at::Tensor& features() const { return features_; }
  const at::Tensor& labels() const { return labels_; }

 private:
  at::Tensor features_;
  at::Tensor labels_;
  std::vector<std::string> feature_names_;
  std::vector<std::string> classes_;
};

/// One pass over a CSV file.
///
/// Thread-safety: one thread at a time.
class COHORT_API CsvIterator {
 public:
  CsvIterator(const std::string& path, const CsvOptions& options);
  CsvIterator(CsvIterator&&) noexcept;
  ~CsvIterator();
  /// Nothing at the end of the file. Throws c10::Error for a row that is wrong.
  std::optional<CsvExample> next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Rows in the order of the file, read as they are asked for, so that it may be larger than the memory: an iterable dataset
/// for the DataLoader. A file that is shortened meanwhile ends early, or with an error.
///
/// Thread-safety: const; each iterator belongs to a thread.
class COHORT_API CsvStream {
 public:
  /// Opens the file to see that its columns are there. Throws as CsvDataset.
  explicit CsvStream(std::string path, CsvOptions options = {});
  CsvIterator iterate() const { return CsvIterator(path_, options_); }

 private:
  std::string path_;
  CsvOptions options_;
};

}  // namespace cohort::data
