#include "cohort/report/system/system_sampler.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "cohort/base/file/file.h"
#include "cohort/base/machine/cpu.h"

namespace cohort::report {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0, kMegabyte = 1e6;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double own_cpu_seconds() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

void add_gib(NamedNumbers& values, const char* name, std::optional<uint64_t> bytes) {
  if (bytes) values.emplace_back(name, static_cast<double>(*bytes) / kGib);
}

// Counters may restart, such as those of an interface that was removed.
void add_rate(NamedNumbers& values, const char* name, std::optional<uint64_t> before, std::optional<uint64_t> now,
              double seconds) {
  if (!before || !now || seconds <= 0.0) return;
  values.emplace_back(name, *now < *before ? 0.0 : static_cast<double>(*now - *before) / kMegabyte / seconds);
}

}  // namespace

std::optional<uint64_t> resident_bytes() {
  const auto status = base::read_file("/proc/self/status");
  return status ? kilobytes_field(*status, "VmRSS") : std::nullopt;
}

SystemSampler::SystemSampler(SystemSamplerOptions options) : options_(std::move(options)) {
  if (!options_.seconds) options_.seconds = &steady_seconds;
  if (!options_.cpu_seconds) options_.cpu_seconds = &own_cpu_seconds;
  if (options_.gpu) nvml_ = Nvml::load(options_.nvml_library);
  last_ = read_counters();
  share_seconds_ = last_.seconds;
  share_cpu_seconds_ = last_.cpu_seconds;
}

NamedNumbers SystemSampler::sample() {
  const Counters now = read_counters();
  NamedNumbers values;
  add_cpu(values, now);
  add_memory(values);
  add_traffic(values, now);
  add_gpus(values);
  last_ = now;
  return values;
}

double SystemSampler::cpu_share() {
  const double now = options_.seconds(), cpu_now = options_.cpu_seconds();
  const double seconds = now - std::exchange(share_seconds_, now);
  const double used = cpu_now - std::exchange(share_cpu_seconds_, cpu_now);
  const int cpus = std::max(1, base::available_cores());
  return seconds > 0.0 ? std::clamp(used / seconds / cpus, 0.0, 1.0) : 0.0;
}

SystemSampler::Counters SystemSampler::read_counters() const {
  Counters counters;
  counters.seconds = options_.seconds();
  counters.cpu_seconds = options_.cpu_seconds();
  counters.host = host_cpu_ticks(proc_file("stat"));
  const std::string io = proc_file("self/io");
  counters.disk_read = number_field(io, "read_bytes");
  counters.disk_written = number_field(io, "write_bytes");
  counters.network = network_bytes(proc_file("net/dev"));
  return counters;
}

void SystemSampler::add_cpu(NamedNumbers& values, const Counters& now) const {
  const double seconds = now.seconds - last_.seconds;
  if (seconds > 0.0) values.emplace_back("system/cpu_percent", 100.0 * (now.cpu_seconds - last_.cpu_seconds) / seconds);
  if (now.host && last_.host && now.host->total > last_.host->total && now.host->busy >= last_.host->busy) {
    const auto busy = static_cast<double>(now.host->busy - last_.host->busy);
    values.emplace_back("system/host_cpu_percent",
                        100.0 * busy / static_cast<double>(now.host->total - last_.host->total));
  }
}

void SystemSampler::add_memory(NamedNumbers& values) const {
  add_gib(values, "system/rss_gib", kilobytes_field(proc_file("self/status"), "VmRSS"));
  if (options_.pss) add_gib(values, "system/pss_gib", kilobytes_field(proc_file("self/smaps_rollup"), "Pss"));
  add_gib(values, "system/host_free_gib", kilobytes_field(proc_file("meminfo"), "MemAvailable"));
}

void SystemSampler::add_traffic(NamedNumbers& values, const Counters& now) const {
  const double seconds = now.seconds - last_.seconds;
  add_rate(values, "system/disk_read_mb_per_s", last_.disk_read, now.disk_read, seconds);
  add_rate(values, "system/disk_write_mb_per_s", last_.disk_written, now.disk_written, seconds);
  if (!last_.network || !now.network) return;
  add_rate(values, "system/net_receive_mb_per_s", last_.network->received, now.network->received, seconds);
  add_rate(values, "system/net_send_mb_per_s", last_.network->sent, now.network->sent, seconds);
}

void SystemSampler::add_gpus(NamedNumbers& values) const {
  if (!nvml_) return;
  for (const GpuFigures& gpu : nvml_->read()) {
    const std::string name = fmt::format("system/gpu{}", gpu.index);
    if (gpu.busy_share) values.emplace_back(name + "_percent", 100.0 * *gpu.busy_share);
    add_gib(values, (name + "_memory_gib").c_str(), gpu.memory_bytes);
    if (gpu.watts) values.emplace_back(name + "_watts", *gpu.watts);
  }
}

std::string SystemSampler::proc_file(const char* name) const {
  const auto text = base::read_file(options_.proc + "/" + name);
  return text ? *text : "";
}

}  // namespace cohort::report
