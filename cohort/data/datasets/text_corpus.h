/// TextCorpus: the bytes of a text file, or of all text files in a folder, one after the other, memory-mapped.
///
/// Files are in the order of their paths, so every rank that sees the same folder sees the same bytes. Leaves out files with a
/// zero byte near the start as binary. Ranks on one host share pages, which are read on first use. Files must not shrink while
/// the corpus is in use: the kernel ends a process (SIGBUS) that reads a mapped page beyond the end of a file.
///
/// Thread-safety: const after opening; any number of threads may read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::data {

struct TextCorpusOptions {
  /// Takes only files whose names end with one of these, such as {".h", ".cpp"}. If empty, takes every file. Only for folders.
  std::vector<std::string> extensions = {};
  /// Stops after this many bytes, also within a file. If absent, reads everything.
  std::optional<int64_t> max_bytes = {};
};

class COHORT_API TextCorpus {
 public:
  /// Opens a file, or a folder with all folders in it (does not follow links to folders). Throws c10::ValueError if the path does
  /// not exist, and c10::Error if a file cannot be read or no text is found.
  static std::shared_ptr<const TextCorpus> open(const std::string& path, const TextCorpusOptions& options = {});
  ~TextCorpus();
  TextCorpus(const TextCorpus&) = delete;
  TextCorpus& operator=(const TextCorpus&) = delete;

  int64_t size() const { return size_; }
  /// The files that were read, in order, and the number of binary files that were left out.
  const std::vector<std::string>& files() const { return files_; }
  int64_t num_skipped_files() const { return num_skipped_files_; }

  /// Copies the bytes from `offset` on. Throws c10::IndexError if they reach past the end.
  void read(int64_t offset, std::span<uint8_t> to) const;
  /// Returns the bytes [begin, end) as a new uint8 tensor.
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
