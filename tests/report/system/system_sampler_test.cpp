#include "cohort/report/system/system_sampler.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/machine/cpu.h"
#include "cohort/base/system/env.h"
#include "tests/support/temporary_folder.h"

namespace cohort::report {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

class FakeHost {
 public:
  FakeHost() {
    std::filesystem::create_directories(folder_ / "self");
    std::filesystem::create_directories(folder_ / "net");
    write("meminfo", "MemTotal:  8388608 kB\nMemFree:  1000 kB\nMemAvailable:  4194304 kB\n");
    write("self/status", "Name:\tx\nVmRSS:\t  2097152 kB\n");
    write("self/smaps_rollup", "00400000-7fff [rollup]\nRss: 2097152 kB\nPss:  1048576 kB\n");
    set_counters(0, 0, 0, 0);
  }
  void write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(base::write_file_atomically(folder_ / name, text).ok());
  }
  void set_counters(int busy, int idle, int megabytes, int received) {
    // Of what is idle, two fifths wait for the disk.
    write("stat", "cpu  " + std::to_string(busy) + " 0 0 " + std::to_string(idle * 3 / 5) + " " +
                      std::to_string(idle * 2 / 5) + " 0 0 0 0 0\ncpu0 1 2 3 4\n");
    write("self/io", "rchar: 99\nread_bytes: " + std::to_string(megabytes) + "000000\nwrite_bytes: 7000000\n");
    write("net/dev",
          "Inter-|   Receive |  Transmit\n face |bytes packets\n"
          "    lo: " +
              std::to_string(received) +
              "99999999 1 0 0 0 0 0 0 999999999 1 0 0 0 0 0 0\n"
              "  eth0:" +
              std::to_string(received) + "000000 1 0 0 0 0 0 0 4000000 1 0 0 0 0 0 0\n");
  }
  SystemSamplerOptions options() {
    return {.gpu = false,
            .proc = folder_.path(),
            .seconds = [this] { return seconds; },
            .cpu_seconds = [this] { return cpu; }};
  }
  double seconds = 100, cpu = 10;

 private:
  test::TemporaryFolder folder_;
};

TEST(SystemSampler, ReportsWhatChangedSinceTheLastSample) {
  FakeHost host;
  SystemSampler sampler(host.options());
  host.seconds += 2;
  host.cpu += 3;
  host.set_counters(300, 100, 8, 6);
  const NamedNumbers expected = {{"system/cpu_percent", 150},
                                 {"system/host_cpu_percent", 75},
                                 {"system/rss_gib", 2},
                                 {"system/pss_gib", 1},
                                 {"system/host_free_gib", 4},
                                 {"system/disk_read_mb_per_s", 4},
                                 {"system/disk_write_mb_per_s", 0},
                                 {"system/net_receive_mb_per_s", 3},
                                 {"system/net_send_mb_per_s", 0}};
  EXPECT_EQ(sampler.sample(), expected);
}

TEST(SystemSampler, LeavesOutWhatTheSystemDoesNotTell) {
  FakeHost host;
  for (const char* name : {"stat", "self/io", "net/dev", "self/smaps_rollup", "meminfo"}) host.write(name, "??");
  SystemSampler sampler(host.options());
  host.seconds += 1;
  EXPECT_EQ(sampler.sample(), (NamedNumbers{{"system/cpu_percent", 0}, {"system/rss_gib", 2}}));
}

TEST(SystemSampler, CountersThatBeginAnewAreNoNegativeRates) {
  FakeHost host;
  host.set_counters(300, 100, 8, 6);
  SystemSampler sampler(host.options());
  host.seconds += 1;
  host.set_counters(0, 0, 0, 0);
  for (const auto& [name, value] : sampler.sample()) EXPECT_GE(value, 0.0) << name;
}

TEST(SystemSampler, ReadsThisHost) {
  SystemSampler sampler({.gpu = false});
  volatile double work = 0;
  for (int i = 0; i < 3000000; ++i) work = work + i;
  std::map<std::string, double> values;
  for (const auto& [name, value] : sampler.sample()) values[name] = value;
  EXPECT_GT(values.at("system/cpu_percent"), 1.0);
  EXPECT_GT(values.at("system/rss_gib") * 1024, 1.0);
  EXPECT_GT(values.at("system/host_free_gib"), 0.0);
  const double share = sampler.cpu_share();
  EXPECT_GT(share, 0.0);
  EXPECT_LE(share, 1.0);
  ASSERT_TRUE(resident_bytes());
  EXPECT_GT(static_cast<double>(*resident_bytes()), kMiB);
}

TEST(SystemSampler, TellsTheShareSinceItWasAskedLast) {
  double seconds = 0.0, used = 0.0;
  SystemSampler sampler({.gpu = false, .seconds = [&] { return seconds; }, .cpu_seconds = [&] { return used; }});
  const double cpus = base::available_cores();
  seconds = 1.0, used = 0.5;
  EXPECT_DOUBLE_EQ(sampler.cpu_share(), 0.5 / cpus);
  seconds = 3.0, used = 0.75;
  EXPECT_DOUBLE_EQ(sampler.cpu_share(), 0.125 / cpus);
  EXPECT_EQ(sampler.cpu_share(), 0.0);
}

TEST(Nvml, ReadsEachGpu) {
  FakeHost host;
  SystemSamplerOptions options = host.options();
  options.gpu = true;
  options.nvml_library = COHORT_FAKE_NVML;
  NamedNumbers gpus;
  for (const auto& value : SystemSampler(options).sample()) {
    if (value.first.starts_with("system/gpu")) gpus.push_back(value);
  }
  EXPECT_EQ(gpus, (NamedNumbers{{"system/gpu0_percent", 75},
                                {"system/gpu0_memory_gib", 1},
                                {"system/gpu0_watts", 250.5},
                                {"system/gpu1_memory_gib", 2}}));
}

TEST(Nvml, IsNothingWhereTheLibraryIsNotThereOrDoesNotStart) {
  EXPECT_EQ(Nvml::load("libnot-there.so.1"), nullptr);
  EXPECT_EQ(Nvml::load("libz.so.1"), nullptr);
  base::set_env("FAKE_NVML_FAILS", "1");
  EXPECT_EQ(Nvml::load(COHORT_FAKE_NVML), nullptr);
  base::unset_env("FAKE_NVML_FAILS");
  EXPECT_NE(Nvml::load(COHORT_FAKE_NVML), nullptr);
}

}  // namespace
}  // namespace cohort::report
