/// TokenDataset: a text as training examples for a byte-level language model. A token is one byte (0..255). An example is a
/// window of `context_length` tokens, and the same window one token later, which the model learns to predict:
///
///     auto corpus = TextCorpus::open("/usr/include", {.extensions = {".h"}});
///     auto [train, held_out] = split_corpus(corpus, {.context_length = 256}, /*held_out_fraction=*/0.1);
///     DataLoader loader(train, {.batch_size = 32, .shuffle = true});
///     for (auto& [input, target] : loader) ...           // both int64 [32, 256]
///
/// Thread-safety: const; any number of threads may read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/data/datasets/text_corpus.h"
#include "cohort/export.h"

namespace cohort::data {

struct TokenDatasetOptions {
  int64_t context_length = 256;
  /// Distance between the starts of windows; 1 means every position. If absent, context_length, so that windows do not overlap.
  std::optional<int64_t> stride = {};
  /// The part [begin, end) of the text. If `end` is absent, the text's end.
  int64_t begin = 0;
  std::optional<int64_t> end = {};
};

class COHORT_API TokenDataset {
 public:
  /// (input, target), each int64 [context_length].
  using Example = std::pair<at::Tensor, at::Tensor>;

  /// Throws c10::ValueError for lengths that are not positive, for a part outside the text, or one too short for a window.
  TokenDataset(std::shared_ptr<const TextCorpus> corpus, TokenDatasetOptions options = {});

  /// Throws c10::IndexError outside [0, size() - 1].
  Example get(int64_t index) const;
  /// Returns (inputs, targets), each int64 [indices, context_length]. DataLoader uses it.
  Example get_batch(const std::vector<int64_t>& indices) const;
  /// Number of windows.
  int64_t size() const { return size_; }

  /// With all values: `stride` and `end` are there.
  const TokenDatasetOptions& options() const { return options_; }
  const TextCorpus& corpus() const { return *corpus_; }
  /// Returns the text of this part as uint8, for statistics such as n-gram counts.
  at::Tensor bytes() const { return corpus_->bytes(options_.begin, *options_.end); }

 private:
  std::shared_ptr<const TextCorpus> corpus_;
  TokenDatasetOptions options_;
  int64_t size_ = 0;
};

/// Splits by position: holds out the last `held_out_fraction` of the bytes, and trains on the others. Throws c10::ValueError
/// unless 0 < held_out_fraction < 1 and both parts hold a window.
COHORT_API std::pair<TokenDataset, TokenDataset> split_corpus(const std::shared_ptr<const TextCorpus>& corpus,
                                                              TokenDatasetOptions options, double held_out_fraction);

}  // namespace cohort::data
