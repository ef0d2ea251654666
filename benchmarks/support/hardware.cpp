#include "benchmarks/support/hardware.h"

#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>

#include "build_facts.h"
#include "cohort/base/file/file.h"
#include "cohort/base/machine/cpu.h"
#include "cohort/base/text/text.h"
#include "cohort/version.h"

namespace cohort::bench {
namespace {

// Returns the value after a colon in the first line that begins with `key`.
std::string field_of(const std::string& path, const std::string& key) {
  const auto text = base::read_file(path);
  if (!text) return "unknown";
  for (const std::string& line : base::split(*text, '\n')) {
    const size_t colon = line.find(':');
    if (line.starts_with(key) && colon != std::string::npos) return base::trim(line.substr(colon + 1));
  }
  return "unknown";
}

std::string load_average() {
  const auto text = base::read_file("/proc/loadavg");
  return text ? base::split(*text, ' ').front() : "unknown";
}

// Does not use fmt/chrono.h, which takes 5 s to compile.
std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  tm fields{};
  gmtime_r(&now, &fields);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &fields);
  return text;
}

}  // namespace

void print_hardware() {
  utsname kernel{};
  ::uname(&kernel);
  const auto memory = static_cast<unsigned long long>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<unsigned long long>(::sysconf(_SC_PAGESIZE));
  fmt::print("machine   {}, {} cores, {}, Linux {}\n", field_of("/proc/cpuinfo", "model name"), base::available_cores(),
             base::format_bytes(memory), kernel.release);
  fmt::print("versions  Cohort {} ({}), LibTorch {}, {}\n", COHORT_VERSION, kBuildType, kTorchVersion,
             kCompilerVersion);
  fmt::print("date      {} UTC, load average {} at the start\n\n", utc_now(), load_average());
}

}  // namespace cohort::bench
