/// ServerFiles: the memory files of a snapshot server by name, kept for processes that may die. Private to this folder; only the
/// server's thread uses it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::snapshot {

class ServerFiles {
 public:
  /// More than the files of the ranks of any node and its partner.
  static constexpr size_t kMostFiles = 8192;

  struct File {
    base::Fd fd;
    uint64_t size = 0;
  };

  explicit ServerFiles(size_t most_files = kMostFiles) : most_files_(most_files) {}

  /// Keeps a memfd that nobody can resize, and replaces a file with the same id. Errors: it is something else, or there is too
  /// little memory for all that the files here may still use.
  base::Result<void> put(const std::string& id, base::Fd fd);
  /// Creates an empty file, unless there is one of this size. An error if there is too little memory.
  base::Result<void> make(const std::string& id, uint64_t size);
  void drop(const std::string& id) { files_.erase(id); }

  const File* find(const std::string& id) const;
  /// The files in the order of their ids.
  const std::map<std::string, File>& files() const { return files_; }

 private:
  base::Result<void> check_number(const std::string& id) const;
  base::Result<void> check_memory(const std::string& id, uint64_t num_bytes) const;

  const size_t most_files_;
  std::map<std::string, File> files_;
};

}  // namespace cohort::snapshot
