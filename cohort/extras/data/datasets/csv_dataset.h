/// CsvDataset and CsvStream: rows of a CSV file as examples, with features and labels from named columns.
///
///     CsvDataset iris("iris.csv", {.labels = {"species"}, .label_type = CsvLabelType::kClassNames});
///     DataLoader loader(iris, {.batch_size = 16, .shuffle = true});
///     for (auto& [features, labels] : loader) ...   // float [16, 4], int64 [16]
///     CsvStream stream("larger_than_memory.csv", {.labels = {"z"}, .label_type = CsvLabelType::kNumber});
///
/// Reads RFC 4180 with a header, CRLF or LF (cohort/extras/files/arrays/csv_reader.h). Rows with missing fields, and fields that
/// are not numbers if numbers are expected, are errors that name the file, the line, the column and its text.
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
  kClassNames  ///< any text; the label is its index in the classes, int64
};

struct CsvOptions {
  /// Names of numeric columns. If empty, all columns that are not labels.
  std::vector<std::string> features = {};
  std::vector<std::string> labels = {};
  CsvLabelType label_type = CsvLabelType::kInteger;
  /// For kClassNames; another name in the file is an error. If empty, all names in the file, sorted (only for CsvDataset).
  std::vector<std::string> classes = {};
  /// The dtype of the features: at::kFloat or at::kDouble.
  at::ScalarType dtype = at::kFloat;
  char delimiter = ',';
  char quote = '"';
  /// The first record has the names of the columns. If false, they are named "0", "1", "2" and so on.
  bool has_header = true;
};

/// (features, labels): [features], and a scalar for one column of labels, [labels] for any other number of columns.
using CsvExample = std::pair<at::Tensor, at::Tensor>;

/// A dataset that keeps all numbers of the file in memory.
///
/// Thread-safety: const; any number of threads may read.
class COHORT_API CsvDataset {
 public:
  /// Throws c10::ValueError for options that contradict each other, and c10::Error for a missing or invalid file.
  explicit CsvDataset(const std::string& path, const CsvOptions& options = {});

  /// Throws c10::IndexError outside [0, size() - 1].
  CsvExample get(int64_t index) const;
  /// Returns the stacked rows of a batch.
  CsvExample get_batch(const std::vector<int64_t>& indices) const;
  int64_t size() const { return features_.size(0); }

  const std::vector<std::string>& feature_names() const { return feature_names_; }
  /// The name of each label; empty unless the labels are class names.
  const std::vector<std::string>& classes() const { return classes_; }
  /// All features [size, features], and all labels [size] or [size, labels].
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
  /// Returns the next row, or an empty optional at the end of the file. Throws c10::Error for an invalid row.
  std::optional<CsvExample> next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// An iterable dataset for the DataLoader: reads rows in the order of the file when they are needed, so the file may be larger
/// than the memory. If the file is shortened meanwhile, it ends early, or with an error.
///
/// Thread-safety: const; each iterator belongs to a thread.
class COHORT_API CsvStream {
 public:
  /// Opens the file to check its columns. Throws like CsvDataset.
  explicit CsvStream(std::string path, CsvOptions options = {});
  CsvIterator iterate() const { return CsvIterator(path_, options_); }

 private:
  std::string path_;
  CsvOptions options_;
};

}  // namespace cohort::data
