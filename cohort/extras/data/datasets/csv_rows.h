/// CsvRows: the records of a CSV file as numbers, from the columns in CsvOptions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cohort/extras/data/datasets/csv_dataset.h"
#include "cohort/extras/files/arrays/csv_reader.h"

namespace cohort::data::detail {

class CsvRows {
 public:
  /// Throws like CsvDataset's constructor.
  CsvRows(const std::string& path, const CsvOptions& options);

  /// Appends the features and the labels of the next record. Returns false at the end of the file.
  bool next();
  /// Returns the rows that next() has appended since the last call: [rows, features], and [rows] or [rows, labels].
  CsvExample take();
  int64_t num_rows() const { return num_rows_; }

  std::vector<std::string> feature_names() const;
  /// Class names in the order of the labels' numbers.
  const std::vector<std::string>& classes() const { return classes_; }

 private:
  double number(size_t column) const;
  int64_t class_of(size_t column);

  CsvOptions options_;
  files::CsvReader reader_;
  std::vector<size_t> feature_columns_;
  std::vector<size_t> label_columns_;
  std::vector<std::string> classes_;
  std::map<std::string, int64_t, std::less<>> class_numbers_;
  std::vector<double> features_;
  std::vector<double> number_labels_;
  std::vector<int64_t> integer_labels_;
  int64_t num_rows_ = 0;
};

}  // namespace cohort::data::detail
