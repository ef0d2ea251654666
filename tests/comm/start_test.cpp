// The start of a job that cannot succeed, between real processes: who says what, and how soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <filesystem>
#include <fstream>
#include <regex>
#include <thread>

#include "cohort/base/env.h"
#include "cohort/base/file.h"
#include "cohort/base/port.h"
#include "cohort/base/text.h"
#include "cohort/comm/collectives.h"
#include "cohort/comm/process_group.h"
#include "cohort/comm/roll_call.h"
#include "tests/support/rank_processes.h"
#include "tests/support/temporary_folder.h"

namespace cohort {
namespace {

using test::run_workers;
using test::worker_arguments;
using test::WorkerOptions;
using test::Workers;
using testing::HasSubstr;

std::string error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const c10::ValueError& error) {
    return "ValueError: " + std::string(error.what_without_backtrace());
  } catch (const c10::DistStoreError& error) {
    return "DistStoreError: " + std::string(error.what_without_backtrace());
  } catch (const c10::DistNetworkError& error) {
    return "DistNetworkError: " + std::string(error.what_without_backtrace());
  } catch (const c10::DistBackendError& error) {
    return "DistBackendError: " + std::string(error.what_without_backtrace());
  }
  return "started";
}

void sleep_ms(int count) { std::this_thread::sleep_for(std::chrono::milliseconds(count)); }

// Starts a group and prints how that ended. Arguments: "<rank>:NAME=value" sets a variable for that process, "*:" for all;
// "<rank>:@late=ms", "@timeout=ms", "@url=...", "@again=1" (start twice), "@stay=1" (never end).
COHORT_WORKER(start) {
  const auto self = base::get_env("RANK").value();
  std::map<std::string, std::string> orders{{"@timeout", "20000"}, {"@late", "0"}, {"@url", "env://"}};
  for (const auto& argument : worker_arguments()) {
    const auto colon = argument.find(':');
    const auto equals = argument.find('=');
    const auto who = argument.substr(0, colon);
    if (who != self && who != "*") continue;
    const auto name = argument.substr(colon + 1, equals - colon - 1);
    if (name.front() == '@') {
      orders[name] = argument.substr(equals + 1);
    } else {
      base::set_env(name.c_str(), argument.substr(equals + 1));
    }
  }
  InitOptions options{.backend = "gloo", .init_method = orders["@url"]};
  if (orders["@url"] != "env://") {
    options.rank = std::stoi(base::get_env("RANK").value());
    options.world_size = std::stoi(base::get_env("WORLD_SIZE").value());
  }
  options.timeout = std::chrono::milliseconds(std::stoi(orders["@timeout"]));
  sleep_ms(std::stoi(orders["@late"]));
  std::cout << "begins" << std::endl;
  for (int i = 0; i <= (orders.contains("@again") ? 1 : 0); ++i) {
    std::cout << error_of([&] {
      init_process_group(options);
      auto one = at::ones({1});
      all_reduce(one);
      TORCH_CHECK(one.item<float>() == get_world_size());
    }) << std::endl;
    if (orders.contains("@stay")) sleep_ms(100'000);
    if (is_initialized()) destroy_process_group();
  }
}

std::string host() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

// Pids, ports, host and times in the text become words.
std::string plain(std::string text) {
  text = std::regex_replace(text, std::regex("^begins\n"), "");
  text = std::regex_replace(text, std::regex("pid [0-9]+"), "pid P");
  text = std::regex_replace(text, std::regex("(rank [0-9] of [0-9]| )on " + host()), "$1on HOST");
  text = std::regex_replace(text, std::regex("on  on HOST"), "on HOST");
  text = std::regex_replace(text, std::regex("(127\\.0\\.0\\.1|::1|localhost|HOST|port) ?:?(\\b[0-9]{4,5}\\b|:[0-9]{4,5}\\b)"), "$1:PORT");
  text = std::regex_replace(text, std::regex("[0-9]+ attempts? in [0-9.]+ (ms|s)"), "N attempts in T");
  text = std::regex_replace(text, std::regex("(within|of) [0-9.]+ (ms|s)\\b"), "$1 T");
  return text;
}

[[maybe_unused]] void expect_texts(const test::WorkerResults& results, const std::vector<std::string>& texts) {
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    EXPECT_EQ(plain(results.ranks[rank].output), texts[rank]) << "rank " << rank << "\n" << results.ranks[rank].errors;
    EXPECT_FALSE(results.ranks[rank].timed_out);
  }
}

TEST(Start, Dump) {
  const std::vector<WorkerOptions> cases{
      {.world_size = 3, .arguments = {"2:RANK=1", "2:@late=500"}},
      {.world_size = 3, .arguments = {"2:RANK=0", "2:@late=500"}},
      {.world_size = 3, .arguments = {"0:WORLD_SIZE=4", "1:WORLD_SIZE=4"}},
      {.world_size = 3, .arguments = {"*:WORLD_SIZE=5", "*:@timeout=1500"}},
      {.world_size = 2, .arguments = {"*:@timeout=1500", "0:WORLD_SIZE=3", "1:WORLD_SIZE=3", "1:@timeout=900"}},
      {.world_size = 2, .arguments = {"0:GLOO_SOCKET_IFNAME=eth7"}},
      {.world_size = 2, .arguments = {"*:COHORT_IP_FAMILY=6"}},
      {.world_size = 2, .arguments = {"*:COHORT_IP_FAMILY=4"}},
      {.world_size = 2, .arguments = {"*:COHORT_IP_FAMILY=5"}},
      {.world_size = 2, .arguments = {"*:MASTER_ADDR=::1"}},
      {.world_size = 2, .arguments = {"*:MASTER_ADDR=localhost", "*:USE_LIBUV=0"}},
      {.world_size = 2, .arguments = {"0:COHORT_IP_FAMILY=4", "1:COHORT_IP_FAMILY=6", "*:MASTER_ADDR=localhost"}},
      {.world_size = 2, .arguments = {"0:@late=3000", "1:@timeout=1000", "0:@timeout=1000"}},
      {.world_size = 2, .arguments = {"*:MASTER_ADDR=no-such-host.invalid", "*:@timeout=1000"}},
      {.world_size = 1, .arguments = {"*:@again=1"}},
      {.world_size = 2, .arguments = {"*:TORCHELASTIC_USE_AGENT_STORE=True", "*:@timeout=1000"}},
  };
  for (const auto& options : cases) {
    std::cout << "=== " << base::join(options.arguments, " ") << "\n";
    const auto results = run_workers("start", options);
    for (const auto& rank : results.ranks)
      std::cout << "-- process " << rank.rank << " exit " << rank.exit_code << " after " << rank.elapsed.count() << "\n"
                << rank.output << rank.errors.substr(0, 600);
  }
}

}  // namespace
}  // namespace cohort
