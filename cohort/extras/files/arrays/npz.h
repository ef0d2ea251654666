/// NumPy's .npz: a zip archive with a .npy file per array, stored or deflated, as np.savez and np.savez_compressed write it.
///
/// Resists zip bombs: compares the sizes in an array's header, the archive's directory and the packed bytes before it allocates
/// memory. A wrong checksum is an error.
///
/// Thread-safety: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/extras/files/arrays/array_data.h"

namespace cohort::files {

class NpzFile {
 public:
  static base::Result<NpzFile> open(const std::string& path);
  /// Opens an archive in memory, such as a test's. The bytes must outlive it.
  static base::Result<NpzFile> view(std::string name, std::string_view bytes);
  NpzFile(NpzFile&&) noexcept;
  ~NpzFile();

  /// The arrays' names, in the order of the archive, without ".npy", as in NumPy.
  const std::vector<std::string>& names() const { return names_; }
  /// Reads and unpacks one array. For an unknown name, the error lists the names.
  base::Result<ArrayData> read(const std::string& name) const;

 private:
  struct Archive;
  NpzFile();
  base::Result<void> list();

  std::unique_ptr<Archive> archive_;
  std::vector<std::string> names_;
};

}  // namespace cohort::files
