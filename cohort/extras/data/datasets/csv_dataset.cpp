#include "cohort/extras/data/datasets/csv_dataset.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "cohort/extras/data/datasets/csv_rows.h"

namespace cohort::data {
namespace {

// The number of rows that are kept as doubles before they become tensors.
constexpr int64_t kCsvRowsPerBlock = 8192;

// Sorts classes, which are numbered in the order of their occurrence, by name, and renumbers the labels.
at::Tensor sort_classes(const at::Tensor& labels, std::vector<std::string>* classes) {
  std::vector<int64_t> order(classes->size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return (*classes)[static_cast<size_t>(a)] < (*classes)[static_cast<size_t>(b)];
  });
  std::vector<std::string> sorted;
  std::vector<int64_t> places(order.size());
  for (const int64_t old : order) {
    places[static_cast<size_t>(old)] = static_cast<int64_t>(sorted.size());
    sorted.push_back((*classes)[static_cast<size_t>(old)]);
  }
  *classes = std::move(sorted);
  return at::tensor(places, at::kLong).index_select(0, labels.flatten()).view(labels.sizes());
}

}  // namespace

CsvDataset::CsvDataset(const std::string& path, const CsvOptions& options) {
  detail::CsvRows rows(path, options);
  std::vector<at::Tensor> features;
  std::vector<at::Tensor> labels;
  for (bool has_more = true; has_more;) {
    has_more = rows.next();
    if (has_more && rows.num_rows() < kCsvRowsPerBlock) continue;
    auto block = rows.take();
    features.push_back(std::move(block.first));
    labels.push_back(std::move(block.second));
  }
  features_ = at::cat(features);
  labels_ = at::cat(labels);
  feature_names_ = rows.feature_names();
  classes_ = rows.classes();
  if (options.classes.empty() && !classes_.empty()) labels_ = sort_classes(labels_, &classes_);
}

CsvExample CsvDataset::get(int64_t index) const {
  auto [features, labels] = get_batch({index});
  return {features.squeeze(0), labels.squeeze(0)};
}

CsvExample CsvDataset::get_batch(const std::vector<int64_t>& indices) const {
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && index < size(), "[cohort] example ", index, " is out of range for a CsvDataset of ",
                      size(), " examples");
  }
  const at::Tensor rows = at::tensor(indices, at::kLong);
  return {at::index_select(features_, 0, rows), at::index_select(labels_, 0, rows)};
}

struct CsvIterator::State {
  detail::CsvRows rows;
};

CsvIterator::CsvIterator(const std::string& path, const CsvOptions& options)
    : state_(std::make_unique<State>(State{detail::CsvRows(path, options)})) {
  TORCH_CHECK_VALUE(
      options.label_type != CsvLabelType::kClassNames || !options.classes.empty(),
      "[cohort] a CsvStream cannot know the classes before it has read the file\n  hint: set CsvOptions::classes");
}
CsvIterator::CsvIterator(CsvIterator&&) noexcept = default;
CsvIterator::~CsvIterator() = default;

std::optional<CsvExample> CsvIterator::next() {
  if (!state_->rows.next()) return std::nullopt;
  CsvExample row = state_->rows.take();
  return CsvExample(row.first.squeeze(0), row.second.squeeze(0));
}

CsvStream::CsvStream(std::string path, CsvOptions options) : path_(std::move(path)), options_(std::move(options)) {
  iterate();
}

}  // namespace cohort::data
