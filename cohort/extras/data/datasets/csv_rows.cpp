#include "cohort/extras/data/datasets/csv_rows.h"

#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cohort/comm/error/throw_error.h"

namespace cohort::data::detail {
namespace {

files::CsvFormat csv_format(const CsvOptions& options) {
  return {.delimiter = options.delimiter, .quote = options.quote, .has_header = options.has_header};
}

}  // namespace

CsvRows::CsvRows(const std::string& path, const CsvOptions& options)
    : options_(options),
      reader_(comm::or_throw(files::CsvReader::open(path, csv_format(options)))),
      classes_(options.classes) {
  TORCH_CHECK_VALUE(options.dtype == at::kFloat || options.dtype == at::kDouble,
                    "[cohort] features of a CSV file are of type float or double, but dtype is ", options.dtype);
  TORCH_CHECK_VALUE(options.classes.empty() || options.label_type == CsvLabelType::kClassNames,
                    "[cohort] classes are given, but the labels are numbers\n  hint: set label_type to "
                    "CsvLabelType::kClassNames");
  for (const auto& name : options.labels) label_columns_.push_back(comm::or_throw(reader_.column(name)));
  for (const auto& name : options.features) feature_columns_.push_back(comm::or_throw(reader_.column(name)));
  for (size_t i = 0; options.features.empty() && i < reader_.column_names().size(); ++i) {
    const bool is_label = std::find(label_columns_.begin(), label_columns_.end(), i) != label_columns_.end();
    if (!is_label) feature_columns_.push_back(i);
  }
  for (size_t i = 0; i < classes_.size(); ++i) {
    const bool is_new = class_numbers_.emplace(classes_[i], static_cast<int64_t>(i)).second;
    TORCH_CHECK_VALUE(is_new, "[cohort] the class \"", classes_[i], "\" is given twice");
  }
}

std::vector<std::string> CsvRows::feature_names() const {
  std::vector<std::string> names;
  for (const size_t column : feature_columns_) names.push_back(reader_.column_names()[column]);
  return names;
}

double CsvRows::number(size_t column) const {
  const double value = comm::or_throw(reader_.number(column));
  const bool fits = options_.dtype == at::kDouble || !std::isfinite(value) ||
                    std::abs(value) <= double{std::numeric_limits<float>::max()};
  if (!fits) comm::throw_error(reader_.error_at(column, "a number that fits into 32 bits"));
  return value;
}

int64_t CsvRows::class_of(size_t column) {
  const auto found = class_numbers_.find(reader_.field(column));
  if (found != class_numbers_.end()) return found->second;
  if (!options_.classes.empty()) comm::throw_error(reader_.error_at(column, "one of the given classes"));
  const auto number = static_cast<int64_t>(classes_.size());
  classes_.emplace_back(reader_.field(column));
  class_numbers_.emplace(classes_.back(), number);
  return number;
}

bool CsvRows::next() {
  if (!comm::or_throw(reader_.next())) return false;
  for (const size_t column : feature_columns_) features_.push_back(number(column));
  for (const size_t column : label_columns_) {
    if (options_.label_type == CsvLabelType::kNumber) {
      number_labels_.push_back(number(column));
    } else {
      const bool is_class = options_.label_type == CsvLabelType::kClassNames;
      integer_labels_.push_back(is_class ? class_of(column) : comm::or_throw(reader_.integer(column)));
    }
  }
  ++num_rows_;
  return true;
}

CsvExample CsvRows::take() {
  const int64_t rows = std::exchange(num_rows_, 0);
  at::Tensor features = at::tensor(features_, at::kDouble).to(options_.dtype);
  at::Tensor labels = options_.label_type == CsvLabelType::kNumber
                          ? at::tensor(number_labels_, at::kDouble).to(options_.dtype)
                          : at::tensor(integer_labels_, at::kLong);
  features_.clear();
  number_labels_.clear();
  integer_labels_.clear();
  const auto num_labels = static_cast<int64_t>(label_columns_.size());
  if (num_labels != 1) labels = labels.view({rows, num_labels});
  return {features.view({rows, static_cast<int64_t>(feature_columns_.size())}), std::move(labels)};
}

}  // namespace cohort::data::detail
