/// TokenFileDataset: a file of tokens as training examples for a language model: windows of `context_length` tokens, and
/// the same windows one token later, which is what the model is to predict.
///
///     TokenFileDataset train("train.bin", {.context_length = 1024, .vocab_size = 50257});
///     DataLoader loader(train, {.batch_size = 8, .shuffle = true});
///     for (auto& [input, target] : loader) ...   // both int64 [8, 1024]
///
/// nanoGPT's raw files of 16-bit tokens, raw 32-bit ones, and llm.c's with their header. Windows at random positions, as
/// nanoGPT draws them, are those of stride 1 with RandomSampler(dataset.size(), {.replacement = true, ...}).
///
/// Only the windows that are asked for are read (by pread), so a file may be larger than the memory; one that is shortened
/// meanwhile is an error, not a SIGBUS as with a mapped file.
///
/// Thread-safety: const; any number of threads may read. Copies share the file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/export.h"

namespace cohort::files {
class TokenFile;
}

namespace cohort::data {

enum class TokenFileFormat {
  kDetect,  ///< llm.c's, if the file begins with its magic number, otherwise kUInt16
  kUInt16,
  kUInt32,
  kLlmC
};

struct TokenFileOptions {
  int64_t context_length = 1024;
  /// Distance between the starts of windows. 0: context_length, so that windows do not overlap; 1: every position.
  int64_t stride = 0;
  /// A token that is not below it is an error, instead of a crash where the model looks it up. 0: any number is a token.
  int64_t vocab_size = 0;
  TokenFileFormat format = TokenFileFormat::kDetect;
};

class COHORT_API TokenFileDataset {
 public:
  /// (input, target), int64 [context_length] each.
  using Example = std::pair<at::Tensor, at::Tensor>;

  /// Throws c10::Error for a file that is missing or not as its format says, c10::ValueError for lengths that are not
  /// positive, or a file too short for a window.
  explicit TokenFileDataset(const std::string& path, TokenFileOptions options = {});

  /// Throws c10::IndexError outside [0, size() - 1], c10::Error when reading fails or a token is not below vocab_size.
  Example get(int64_t index) const;
  /// (inputs, targets), int64 [indices, context_length] each; used by DataLoader.
  Example get_batch(const std::vector<int64_t>& indices) const;
  /// Number of windows.
  int64_t size() const { return size_; }
  int64_t num_tokens() const;
  const TokenFileOptions& options() const { return options_; }

 private:
  std::shared_ptr<const files::TokenFile> file_;
  TokenFileOptions options_;
  int64_t size_ = 0;
};

}  // namespace cohort::data
