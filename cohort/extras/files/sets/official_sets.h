/// The catalog: popular datasets, their addresses, and digests to check downloads.
///
/// Addresses and MD5 digests are from the datasets' own pages; torchvision uses the same (torchvision/datasets/cifar.py and
/// mnist.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/extras/files/sets/digest.h"

namespace cohort::files {

struct SetFile {
  enum class Form { kPlain, kGzip, kTarGzip };

  std::string url;
  Digest digest;
  Form form = Form::kPlain;
  /// The result, below the root folder: a file, or the one folder that a .tar.gz contains.
  std::string target;
  /// Upper limits, not sizes: of the download, and of its unpacked content.
  uint64_t max_bytes = 0;
  uint64_t max_unpacked_bytes = 0;
};

struct OfficialSet {
  std::string name;
  /// One line for users.
  std::string summary;
  /// The name of its synthetic dataset in `cohort-data make`.
  std::string synthetic_dataset;
  std::vector<SetFile> files;
};

const std::vector<OfficialSet>& official_sets();
/// Lies in the folder of every synthetic dataset, so that nobody takes it for the published one.
inline constexpr const char* kSyntheticNote = "SYNTHETIC.txt";

/// Returns null for an unknown name.
const OfficialSet* find_official_set(const std::string& name);

}  // namespace cohort::files
