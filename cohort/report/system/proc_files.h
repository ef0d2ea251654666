/// Parses the files of /proc about this process and its host. Pure functions of their texts. Values that a text lacks are absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cohort::report {

/// Reads fields such as "VmRSS:   1234 kB" of status, meminfo and smaps_rollup, in bytes.
std::optional<uint64_t> kilobytes_field(std::string_view text, std::string_view name);
/// Reads fields such as "read_bytes: 1234" of /proc/self/io.
std::optional<uint64_t> number_field(std::string_view text, std::string_view name);

/// The time of all CPUs in clock ticks since boot: the first line of /proc/stat.
struct CpuTicks {
  uint64_t busy = 0;
  uint64_t total = 0;
};
std::optional<CpuTicks> host_cpu_ticks(std::string_view stat);

/// The bytes of all interfaces except the loopback: /proc/net/dev.
struct NetworkBytes {
  uint64_t received = 0;
  uint64_t sent = 0;
};
std::optional<NetworkBytes> network_bytes(std::string_view net_dev);

}  // namespace cohort::report
