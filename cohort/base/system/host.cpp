#include "cohort/base/system/host.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <fstream>

namespace cohort::base {

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

const std::string& boot_id() {
  // Never destroyed, because operations that are completed at the program's end look for lost ranks after static destructors have
  // run.
  static const std::string& id = *new std::string([] {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string line;
    std::getline(file, line);
    return line;
  }());
  return id;
}

std::string namespace_of(const char* path) {
  std::array<char, 128> link{};
  const auto length = readlink(path, link.data(), link.size());
  return {link.data(), static_cast<size_t>(length > 0 ? length : 0)};
}

}  // namespace cohort::base
