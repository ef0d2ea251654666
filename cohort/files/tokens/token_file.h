/// TokenFile: a text as a sequence of token numbers, for training language models.
///
/// Raw files are nanoGPT's train.bin: little-endian numbers and nothing else. llm.c's files have a header of 256 32-bit numbers:
/// 20240520, 1 (16-bit tokens, GPT-2) or 20240801, 7 (32-bit tokens, Llama 3), then the number of tokens that follow; the file
/// has exactly that many.
///
/// Reads only the requested tokens, with pread, so a file may be larger than the memory. A file that is shortened meanwhile is an
/// error, not a SIGBUS as with a mapped file.
///
/// Thread-safety: const; any number of threads may read.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/files/input/random_access_file.h"

namespace cohort::files {

enum class TokenFormat {
  kDetect,  ///< llm.c's, if the file begins so, otherwise raw 16-bit tokens (GPT-2's tokens cannot begin so)
  kRawUInt16,
  kRawUInt32,
  kLlmC
};

class TokenFile {
 public:
  static base::Result<TokenFile> open(const std::string& path, TokenFormat format = TokenFormat::kDetect);
  static base::Result<TokenFile> read_header(RandomAccessFile file, TokenFormat format = TokenFormat::kDetect);

  const std::string& path() const { return file_.path(); }
  /// The number of tokens.
  int64_t size() const { return size_; }
  /// The size of a token in bytes: 2 or 4.
  int64_t token_size() const { return token_size_; }
  bool has_header() const { return begin_ > 0; }

  /// Reads tokens from `first` on until `to` is full. Requires that they are in [0, size()].
  base::Result<void> read(int64_t first, std::span<int64_t> to) const;
  /// The place of a token's bytes, for errors.
  uint64_t offset_of(int64_t token) const {
    return begin_ + static_cast<uint64_t>(token) * static_cast<uint64_t>(token_size_);
  }
  base::Error error_at(int64_t token, std::string_view expected, std::string_view found) const {
    return file_.error_at(offset_of(token), expected, found);
  }

 private:
  TokenFile(RandomAccessFile file, int64_t token_size, uint64_t begin);

  RandomAccessFile file_;
  int64_t token_size_;
  uint64_t begin_;
  int64_t size_;
};

}  // namespace cohort::files
