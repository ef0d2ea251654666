/// TokenFileDataset: a file of tokens as training examples for a language model: windows of `context_length` tokens, and the same
/// windows one token later, which the model learns to predict.
///
///     TokenFileDataset train("train.bin", {.context_length = 1024, .vocab_size = 50257});
///     DataLoader loader(train, {.batch_size = 8, .shuffle = true});
///     for (auto& [input, target] : loader) ...   // both int64 [8, 1024]
///
/// Reads nanoGPT's raw files of 16-bit tokens, raw files of 32-bit tokens, and llm.c's files with their header. For windows at
/// random positions, as in nanoGPT, use stride 1 and RandomSampler(dataset.size(), {.replacement = true, ...}).
///
/// Reads only the requested windows (with pread), so a file may be larger than the memory. If a file is shortened meanwhile,
/// reading throws, unlike a mapped file, which raises SIGBUS.
///
/// Thread-safety: const; any number of threads may read. Copies share the file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
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
  /// Distance between the starts of windows; 1 means every position. If absent, context_length, so that windows do not overlap.
  std::optional<int64_t> stride = {};
  /// A token that is not below this is an error, instead of a crash in the model's embedding. If absent, any token is
  /// allowed.
  std::optional<int64_t> vocab_size = {};
  TokenFileFormat format = TokenFileFormat::kDetect;
};

class COHORT_API TokenFileDataset {
 public:
  /// (input, target), each int64 [context_length].
  using Example = std::pair<at::Tensor, at::Tensor>;

  /// Throws c10::Error if the file is missing or does not match its format, and c10::ValueError for lengths that are not
  /// positive, or a file too short for a window.
  explicit TokenFileDataset(const std::string& path, TokenFileOptions options = {});

  /// Throws c10::IndexError outside [0, size() - 1], and c10::Error if reading fails or a token is not below vocab_size.
  Example get(int64_t index) const;
  /// Returns (inputs, targets), each int64 [indices, context_length]. DataLoader uses it.
  Example get_batch(const std::vector<int64_t>& indices) const;
  /// Number of windows.
  int64_t size() const { return size_; }
  int64_t num_tokens() const;
  /// With all values: `stride` is there.
  const TokenFileOptions& options() const { return options_; }

 private:
  std::shared_ptr<const files::TokenFile> file_;
  TokenFileOptions options_;
  int64_t size_ = 0;
};

}  // namespace cohort::data
