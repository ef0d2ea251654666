#include "cohort/data/datasets/token_dataset.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cmath>

namespace cohort::data {

TokenDataset::TokenDataset(std::shared_ptr<const TextCorpus> corpus, TokenDatasetOptions options)
    : corpus_(std::move(corpus)), options_(options) {
  TORCH_CHECK_VALUE(corpus_ != nullptr, "[cohort] TokenDataset needs a text, but got a null pointer");
  if (!options_.stride) options_.stride = options_.context_length;
  if (!options_.end) options_.end = corpus_->size();
  TORCH_CHECK_VALUE(options_.context_length > 0, "[cohort] TokenDataset needs context_length >= 1, but got ",
                    options_.context_length);
  TORCH_CHECK_VALUE(*options_.stride > 0, "[cohort] TokenDataset needs stride >= 1, but got ", *options_.stride);
  TORCH_CHECK_VALUE(options_.begin >= 0 && options_.begin <= *options_.end && *options_.end <= corpus_->size(),
                    "[cohort] TokenDataset needs 0 <= begin <= end <= ", corpus_->size(),
                    " (the text's bytes), but got [", options_.begin, ", ", *options_.end, ")");
  const int64_t num_bytes = *options_.end - options_.begin;
  TORCH_CHECK_VALUE(num_bytes > options_.context_length, "[cohort] a text of ", num_bytes,
                    " bytes is too short for a window of ", options_.context_length,
                    " tokens and the token after it\n  hint: use a shorter context_length or more text");
  size_ = (num_bytes - 1 - options_.context_length) / *options_.stride + 1;
}

TokenDataset::Example TokenDataset::get(int64_t index) const {
  Example batch = get_batch({index});
  return {batch.first.squeeze(0), batch.second.squeeze(0)};
}

TokenDataset::Example TokenDataset::get_batch(const std::vector<int64_t>& indices) const {
  const int64_t length = options_.context_length;
  const auto count = static_cast<int64_t>(indices.size());
  at::Tensor windows = at::empty({count, length + 1}, at::kByte);
  auto* to = windows.mutable_data_ptr<uint8_t>();
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && index < size_, "[cohort] example ", index,
                      " is out of range for a TokenDataset of ", size_, " examples");
    corpus_->read(options_.begin + index * *options_.stride, {to, static_cast<size_t>(length + 1)});
    to += length + 1;
  }
  return {windows.narrow(1, 0, length).to(at::kLong), windows.narrow(1, 1, length).to(at::kLong)};
}

std::pair<TokenDataset, TokenDataset> split_corpus(const std::shared_ptr<const TextCorpus>& corpus,
                                                   TokenDatasetOptions options, double held_out_fraction) {
  TORCH_CHECK_VALUE(held_out_fraction > 0 && held_out_fraction < 1,
                    "[cohort] split_corpus needs 0 < held_out_fraction < 1, but got ", held_out_fraction);
  TORCH_CHECK_VALUE(corpus != nullptr, "[cohort] split_corpus needs a text, but got a null pointer");
  const int64_t end = options.end.value_or(corpus->size());
  const int64_t num_held_out = std::llround(static_cast<double>(end - options.begin) * held_out_fraction);
  TokenDatasetOptions train = options;
  train.end = end - num_held_out;
  TokenDatasetOptions held_out = options;
  held_out.begin = *train.end;
  return {TokenDataset(corpus, train), TokenDataset(corpus, held_out)};
}

}  // namespace cohort::data
