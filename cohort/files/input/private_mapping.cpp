#include "cohort/files/input/private_mapping.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>

#include "cohort/base/text/text.h"

namespace cohort::files {

base::Result<std::shared_ptr<const PrivateMapping>> PrivateMapping::map(const RandomAccessFile& file) {
  if (file.size() == 0) return std::shared_ptr<const PrivateMapping>(new PrivateMapping({}));
  void* const begin = mmap(nullptr, file.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE, file.descriptor(), 0);
  if (begin == MAP_FAILED) {
    return base::Error(fmt::format("cannot map \"{}\" into memory: {}", file.path(), base::errno_text(errno)));
  }
  return std::shared_ptr<const PrivateMapping>(new PrivateMapping({static_cast<char*>(begin), file.size()}));
}

PrivateMapping::~PrivateMapping() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

}  // namespace cohort::files
