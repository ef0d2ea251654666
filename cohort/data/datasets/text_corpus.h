/// TextCorpus: the bytes of a text file, or of all text files under a folder, one after the other, memory-mapped.
///
/// Files come in the order of their paths, so every rank that sees the same folder sees the same bytes. Files with a
/// zero byte near the start are taken for binary and left out. Pages are shared between ranks on one host and read on
/// first use. The files must not shrink while the corpus is in use: the kernel ends a process that reads a mapped page
/// whose file is gone (SIGBUS).
///
/// Thread-safety: const after opening; any number of threads may read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::data {

struct TextCorpusOptions {
  /// Take only files whose name ends so, such as {".h", ".cpp"}. Empty: every file. Only for folders.
  std::vector<std::string> extensions = {};
  /// Stop after so many bytes, inside a file if need be. 0: no limit.
  int64_t max_bytes = 0;
};

class COHORT_API TextCorpus {
 public:
  /// Opens a file, or the folder and all folders under it (links to folders are not followed).
  /// Throws c10::ValueError when nothing is there, c10::Error when a file cannot be read or no text is found.
  static std::shared_ptr<const TextCorpus> open(const std::string& path, const TextCorpusOptions& options = {});
  ~TextCorpus();
  TextCorpus(const TextCorpus&) = delete;
  TextCorpus& operator=(const TextCorpus&) = delete;

  int64_t size() const { return size_; }
  /// The files read, in order, and how many were left out because they are binary.
  const std::vector<std::string>& files() const { return files_; }
  int64_t num_skipped_files() const { return num_skipped_files_; }

  /// Copies the bytes from `offset` on. Throws c10::IndexError when they reach past the end.
  void read(int64_t offset, std::span<uint8_t> to) const;
  /// The bytes [begin, end) as a uint8 tensor of its own.
  at::Tensor bytes(int64_t begin, int64_t end) const;

 private:
  struct Piece;
  TextCorpus();
  bool add_file(const std::string& path, int64_t num_bytes_wanted, bool skip_binary);

  std::vector<Piece> pieces_;
  std::vector<std::string> files_;
  int64_t size_ = 0;
  int64_t num_skipped_files_ = 0;
};

}  // namespace cohort::data
