#include "cohort/data/datasets/token_file_dataset.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "cohort/comm/error/throw_error.h"
#include "cohort/files/tokens/token_file.h"

namespace cohort::data {
namespace {

files::TokenFormat token_format(TokenFileFormat format) {
  switch (format) {
    case TokenFileFormat::kUInt16:
      return files::TokenFormat::kRawUInt16;
    case TokenFileFormat::kUInt32:
      return files::TokenFormat::kRawUInt32;
    case TokenFileFormat::kLlmC:
      return files::TokenFormat::kLlmC;
    case TokenFileFormat::kDetect:
      break;
  }
  return files::TokenFormat::kDetect;
}

}  // namespace

TokenFileDataset::TokenFileDataset(const std::string& path, TokenFileOptions options) : options_(options) {
  if (!options_.stride) options_.stride = options_.context_length;
  TORCH_CHECK_VALUE(options_.context_length > 0, "[cohort] TokenFileDataset needs context_length >= 1, but got ",
                    options_.context_length);
  TORCH_CHECK_VALUE(*options_.stride > 0, "[cohort] TokenFileDataset needs stride >= 1, but got ", *options_.stride);
  TORCH_CHECK_VALUE(options_.vocab_size.value_or(1) >= 1, "[cohort] TokenFileDataset needs vocab_size >= 1, but got ",
                    *options_.vocab_size);
  file_ = std::make_shared<const files::TokenFile>(
      comm::or_throw(files::TokenFile::open(path, token_format(options_.format))));
  TORCH_CHECK_VALUE(file_->size() > options_.context_length, "[cohort] \"", path, "\" has ", file_->size(),
                    " tokens: too few for a window of ", options_.context_length,
                    " tokens and the token after it\n  hint: use a shorter context_length or more text");
  size_ = (file_->size() - 1 - options_.context_length) / *options_.stride + 1;
}

TokenFileDataset::Example TokenFileDataset::get(int64_t index) const {
  const Example batch = get_batch({index});
  return {batch.first.squeeze(0), batch.second.squeeze(0)};
}

TokenFileDataset::Example TokenFileDataset::get_batch(const std::vector<int64_t>& indices) const {
  const int64_t length = options_.context_length;
  const auto count = static_cast<int64_t>(indices.size());
  at::Tensor inputs = at::empty({count, length}, at::kLong);
  at::Tensor targets = at::empty({count, length}, at::kLong);
  auto* input = inputs.mutable_data_ptr<int64_t>();
  auto* target = targets.mutable_data_ptr<int64_t>();
  std::vector<int64_t> window(static_cast<size_t>(length) + 1);
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && index < size_, "[cohort] example ", index,
                      " is out of range for a TokenFileDataset of ", size_, " examples");
    const int64_t first = index * *options_.stride;
    comm::or_throw(file_->read(first, window));
    if (options_.vocab_size) {
      const auto largest = std::max_element(window.begin(), window.end());
      TORCH_CHECK(
          *largest < *options_.vocab_size, "[cohort] ",
          file_
              ->error_at(first + (largest - window.begin()),
                         "a token below vocab_size=" + std::to_string(*options_.vocab_size), std::to_string(*largest))
              .describe());
    }
    input = std::copy(window.begin(), window.end() - 1, input);
    target = std::copy(window.begin() + 1, window.end(), target);
  }
  return {std::move(inputs), std::move(targets)};
}

int64_t TokenFileDataset::num_tokens() const { return file_->size(); }

}  // namespace cohort::data
