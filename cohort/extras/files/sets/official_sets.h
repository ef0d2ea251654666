/// The catalogue: data sets that many people use, where they are published, and how to see that they arrived whole.
///
/// Addresses and MD5 digests are those of the sets' own pages, which torchvision uses too (torchvision/datasets/cifar.py and
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
  /// What is there in the end, below the root folder: a file, or the one folder that a .tar.gz holds.
  std::string target;
  /// Bounds, not sizes: of the download, and of what is unpacked from it.
  uint64_t max_bytes = 0;
  uint64_t max_unpacked_bytes = 0;
};

struct OfficialSet {
  std::string name;
  /// One line for people.
  std::string summary;
  /// What `cohort-data make` calls the stand-in for it.
  std::string stand_in;
  std::vector<SetFile> files;
};

const std::vector<OfficialSet>& official_sets();
/// Null for an unknown name.
/// In the folder of every set that was made here: so that nobody takes it for the published one.
inline constexpr const char* kStandInNote = "STAND-IN.txt";

const OfficialSet* find_official_set(const std::string& name);

}  // namespace cohort::files
