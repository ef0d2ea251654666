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

#include "cohort/base/file/file.h"
#include "cohort/base/net/port.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/comm/start/membership_check.h"
#include "tests/support/rank_processes.h"
#include "tests/support/temporary_folder.h"

namespace cohort {
namespace {

using test::run_workers;
using test::worker_arguments;
using test::WorkerOptions;
using test::Workers;
using testing::HasSubstr;

std::string start_error(const std::function<void()>& fn) {
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
// "<rank>:@late=ms", "@after=path" (waits for that file), "@timeout=ms", "@url=...", "@again=ms" (start twice, with this timeout
// then), "@stay=1" (never end), "@backend=name" or "@backend=" for none.
COHORT_WORKER(start) {
  constexpr const char* kEnough = "100000";
  const auto self = base::get_env("RANK").value();
  std::map<std::string, std::string> orders{
      {"@timeout", kEnough}, {"@late", "0"}, {"@url", "env://"}, {"@backend", "gloo"}};
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
  InitOptions options{.backend = orders["@backend"], .init_method = orders["@url"]};
  if (orders["@url"] != "env://") {
    options.rank = std::stoi(base::get_env("RANK").value());
    options.world_size = std::stoi(base::get_env("WORLD_SIZE").value());
  }
  options.timeout = std::chrono::milliseconds(std::stoi(orders["@timeout"]));
  sleep_ms(std::stoi(orders["@late"]));
  while (orders.contains("@after") && !std::filesystem::exists(orders["@after"])) sleep_ms(5);
  std::cout << "begins\n" << std::flush;
  for (int i = 0; i <= (orders.contains("@again") ? 1 : 0); ++i) {
    std::cout << start_error([&] {
      init_process_group(options);
      auto one = at::ones({1});
      all_reduce(one);
      TORCH_CHECK(one.item<float>() == get_world_size());
    }) << "\n" << std::flush;
    if (orders.contains("@stay")) sleep_ms(100'000);
    if (is_initialized()) destroy_process_group();
    if (orders.contains("@again")) options.timeout = std::chrono::milliseconds(std::stoi(orders["@again"]));
  }
}

std::string host() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

// Pids, ports, the host's name and times become words.
std::string plain(std::string text) {
  text = std::regex_replace(text, std::regex("^begins\n"), "");
  text = std::regex_replace(text, std::regex("pid [0-9]+"), "pid P");
  text = std::regex_replace(text, std::regex(" on " + host() + "\\b"), " on HOST");
  text = std::regex_replace(text, std::regex(":[0-9]{4,5}\\b"), ":PORT");
  text = std::regex_replace(text, std::regex("port [0-9]{4,5}\\b"), "port PORT");
  text = std::regex_replace(text, std::regex("[0-9]+ attempts? in [0-9.]+ [mu]?s"), "T");
  return std::regex_replace(text, std::regex("within [0-9.]+ [mu]?s"), "T");
}

void expect_texts(const test::WorkerResults& results, const std::vector<std::string>& texts) {
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    EXPECT_EQ(plain(results.ranks[rank].output), texts[rank] + "\n") << "process " << rank << "\n"
                                                                     << results.ranks[rank].errors;
    EXPECT_FALSE(results.ranks[rank].timed_out);
  }
}

constexpr std::chrono::seconds kHangLimit{100};

// A store as a launcher hosts it, in the test's process.
struct AgentStore {
  AgentStore() {
    store = c10::make_intrusive<c10d::TCPStore>(
        "127.0.0.1", c10d::TCPStoreOptions{.port = 0, .isServer = true, .waitWorkers = false});
  }
  std::vector<std::string> arguments(std::vector<std::string> more = {}) const {
    more.push_back("*:MASTER_PORT=" + std::to_string(store->getPort()));
    more.push_back("*:TORCHELASTIC_USE_AGENT_STORE=True");
    return more;
  }
  void wait_for_rank(int rank) const {
    store->wait({"default_pg/0//cohort/start/" + std::to_string(rank)}, kHangLimit);
  }
  c10::intrusive_ptr<c10d::TCPStore> store;
};

// Waits until a rank has come to the store that rank 0 hosts.
void wait_for_rank(int port, int rank) {
  const c10d::TCPStoreOptions options{.port = static_cast<uint16_t>(port), .waitWorkers = false, .timeout = kHangLimit};
  c10d::TCPStore("127.0.0.1", options).wait({"default_pg/0//cohort/start/" + std::to_string(rank)});
}

std::string two_processes(int rank) {
  return "ValueError: [cohort] two processes have rank " + std::to_string(rank) +
         "\n  the first: pid P on HOST\n  the second: pid P on HOST\n"
         "  hint: give each process a RANK of its own; the first may be left over from an earlier run";
}

TEST(Start, TwoProcessesWithOneRankMessage) {
  const auto results = run_workers("start", {.world_size = 3, .arguments = {"2:RANK=1", "2:@late=200"}});
  expect_texts(results, {two_processes(1), two_processes(1), two_processes(1)});
}

TEST(Start, TwoProcessesWithRankZeroMessage) {
  const auto results = run_workers("start", {.world_size = 3, .arguments = {"2:RANK=0", "2:@late=200"}});
  expect_texts(results, {two_processes(0), two_processes(0), two_processes(0)});
}

TEST(Start, TwoProcessesWithOneRankNamePids) {
  const test::TemporaryFolder folder;
  const base::PortReservation port = base::reserve_port().value();
  Workers workers("start", {.arguments = {"*:WORLD_SIZE=3", "*:MASTER_PORT=" + std::to_string(port.port), "1:RANK=0",
                                          "1:@after=" + (folder / "first")}});
  const auto first = std::to_string(workers.pid(0));
  const auto second = std::to_string(workers.pid(1));
  wait_for_rank(port.port, 0);
  std::ofstream(folder / "first") << "is here";
  EXPECT_THAT(workers.wait()[1].output, HasSubstr("the first: pid " + first + " on " + host() + "\n  the second: pid " +
                                                  second + " on " + host() + "\n"));
}

TEST(Start, WorldSizesThatDifferMessage) {
  const auto results = run_workers("start", {.world_size = 3, .arguments = {"0:WORLD_SIZE=4", "1:WORLD_SIZE=4"}});
  for (const auto& each : results.ranks) {
    EXPECT_THAT(plain(each.output),
                testing::StartsWith("ValueError: [cohort] the ranks disagree on the world size\n"
                                    "  world size 3: rank 2 (pid P on HOST)\n  world size 4: rank "));
    EXPECT_FALSE(each.timed_out);
  }
}

std::string never_came(const std::string& place) {
  return "DistStoreError: [cohort] init_process_group timed out: ranks 2 and 3 never arrived\n"
         "  rank 0 (pid P on HOST) waited 5.0 s at " +
         place +
         "\n  arrived: rank 0 (pid P on HOST), rank 1 (pid P on HOST)\n"
         "  caused by: Timed out after 5 seconds waiting for clients. 2/4 clients joined.\n"
         "  hint: see whether ranks 2 and 3 started, and with the same meeting place; if so, raise "
         "InitOptions::timeout";
}

const std::vector<std::string> kTwoOfFour{"*:WORLD_SIZE=4", "0:@timeout=5000"};

TEST(Start, TimeOutNamesRanksThatNeverCameMessage) {
  const auto text = never_came("127.0.0.1:PORT, which it hosts");
  expect_texts(run_workers("start", {.arguments = kTwoOfFour}), {text, text});
}

TEST(Start, TimeOutAtAnAgentsStoreMessage) {
  const AgentStore agent;
  const auto text = never_came("127.0.0.1:PORT");
  expect_texts(run_workers("start", {.arguments = agent.arguments(kTwoOfFour)}), {text, text});
}

TEST(Start, TimeOutAtAFileMessage) {
  const test::TemporaryFolder folder;
  auto arguments = kTwoOfFour;
  arguments.push_back("*:@url=file://" + (folder / "store"));
  const auto text = never_came(folder / "store");
  expect_texts(run_workers("start", {.arguments = arguments}), {text, text});
}

TEST(Start, RankThatCameAndDiedIsNamedMessage) {
  const AgentStore agent;
  Workers workers("start", {.world_size = 2, .arguments = agent.arguments({"*:WORLD_SIZE=4"})});
  agent.wait_for_rank(0);
  agent.wait_for_rank(1);
  workers.signal(1, SIGKILL);
  expect_texts(workers.wait(), {"DistStoreError: [cohort] init_process_group failed: rank 1 (pid P on HOST) arrived "
                                "but has ended since\n  still missing: ranks 2 and 3\n"
                                "  hint: look at the output of rank 1 for the reason"});
}

TEST(Start, StoreThatDiesMessage) {
  const base::PortReservation port = base::reserve_port().value();
  Workers workers("start", {.arguments = {"*:WORLD_SIZE=3", "*:MASTER_PORT=" + std::to_string(port.port)}});
  wait_for_rank(port.port, 0);
  wait_for_rank(port.port, 1);
  workers.signal(0, SIGKILL);
  const auto text = plain(workers.wait()[1].output);
  EXPECT_THAT(text, testing::StartsWith("DistStoreError: [cohort] init_process_group failed: rank "));
  EXPECT_THAT(text, testing::ContainsRegex("rank 1 \\(pid P on HOST\\) lost the store at 127.0.0.1:PORT\n|"
                                           "rank 0 \\(pid P on HOST\\) arrived but has ended since\n"));
}

TEST(Start, StoreThatIsStoppedMessage) {
  const base::PortReservation port = base::reserve_port().value();
  Workers workers("start",
                  {.arguments = {"*:WORLD_SIZE=3", "1:@timeout=5000", "*:MASTER_PORT=" + std::to_string(port.port)}});
  wait_for_rank(port.port, 1);
  workers.signal(0, SIGSTOP);
  workers.wait_for_output(1, "launcher\n");
  workers.signal(0, SIGKILL);
  const auto text = plain(workers.wait()[1].output);
  EXPECT_EQ(
      text,
      "DistStoreError: [cohort] init_process_group failed: rank 1 (pid P on HOST) gets no answer from the store at "
      "127.0.0.1:PORT\n  caused by: no answer within the timeout of 5.0 s, nor a few seconds after it\n"
      "  hint: the process that hosts it is stopped or its host is lost; look at rank 0, or at the launcher\n");
}

TEST(Start, PortInUseMessage) {
  const base::PortReservation port = base::reserve_port().value();
  ASSERT_EQ(::listen(port.socket.get(), 4), 0);  // and never accepts
  std::string command;
  std::getline(std::ifstream("/proc/self/cmdline"), command, '\0');
  const auto results =
      run_workers("start", {.arguments = {"*:MASTER_PORT=" + std::to_string(port.port), "*:@timeout=1000"}});
  EXPECT_THAT(
      plain(results[0].output),
      testing::StartsWith("DistNetworkError: [cohort] rank 0 of 2 on HOST cannot host the store: port PORT is in use\n"
                          "  caused by: pid P listens on it: " +
                          command));
  EXPECT_THAT(results[0].output, HasSubstr("pid " + std::to_string(getpid()) + " listens"));
  EXPECT_THAT(plain(results[0].output),
              testing::EndsWith("\n  hint: end that process, or choose another port in MASTER_ADDR and "
                                "MASTER_PORT, the same on every rank\n"));
  EXPECT_EQ(
      plain(results[1].output),
      "DistNetworkError: [cohort] rank 1 of 2 on HOST cannot reach the store at 127.0.0.1:PORT\n"
      "  caused by: 127.0.0.1 (IPv4): accepted the connection but gave no answer T; T\n"
      "  hint: another program uses this port; choose another one for MASTER_ADDR and MASTER_PORT, the same on every "
      "rank\n");
}

TEST(Start, PortIsFreeAtOnceAfterARunAndAfterACrash) {
  const base::PortReservation port = base::reserve_port().value();
  const std::string argument = "*:MASTER_PORT=" + std::to_string(port.port);
  for (int i = 0; i < 2; ++i) expect_texts(run_workers("start", {.arguments = {argument}}), {"started", "started"});
  {
    Workers crashing("start", {.arguments = {argument, "*:@stay=1"}});
    crashing.wait_for_output(0, "started");
    crashing.wait_for_output(1, "started");
    crashing.signal(0, SIGKILL);
    crashing.signal(1, SIGKILL);
    crashing.wait();
  }
  expect_texts(run_workers("start", {.arguments = {argument}}), {"started", "started"});
}

TEST(Start, FileIsReusedAfterACleanEndOnly) {
  const test::TemporaryFolder folder;
  const auto path = folder / "store";
  const std::string argument = "*:@url=file://" + path;
  for (int i = 0; i < 2; ++i) expect_texts(run_workers("start", {.arguments = {argument}}), {"started", "started"});
  {
    Workers crashing("start", {.arguments = {argument, "*:@stay=1"}});
    crashing.wait_for_output(0, "started");
    crashing.wait_for_output(1, "started");
    crashing.signal(0, SIGKILL);
    crashing.signal(1, SIGKILL);
    crashing.wait();
  }
  const auto results = run_workers("start", {.arguments = {argument}});
  for (const auto& each : results.ranks) {
    const auto text = std::regex_replace(plain(each.output),
                                         std::regex("rank [01] of it, pid P on HOST, has ended|a start that "
                                                    "failed there: .*"),
                                         "REASON");
    EXPECT_EQ(text, "DistStoreError: [cohort] the file store " + path +
                        " is left over from another run\n  caused by: REASON\n" + "  hint: delete " + path +
                        ", or give each run a path of its own\n");
  }
  std::filesystem::remove(path);
  expect_texts(run_workers("start", {.arguments = {argument}}), {"started", "started"});
}

TEST(Start, InterfaceThatDoesNotExistMessage) {
  const auto results = run_workers("start", {.arguments = {"1:GLOO_SOCKET_IFNAME=eth77"}});
  for (const auto& each : results.ranks) {
    EXPECT_THAT(
        plain(each.output),
        testing::StartsWith("ValueError: [cohort] rank 1 (pid P on HOST) cannot start: GLOO_SOCKET_IFNAME: interface "
                            "\"eth77\" does not exist\n  hint: this host's interfaces: lo (127.0.0.1"));
  }
}

TEST(Start, AddressFamilyIsForced) {
  expect_texts(run_workers("start", {.arguments = {"*:COHORT_IP_FAMILY=4", "*:MASTER_ADDR=localhost"}}),
               {"started", "started"});
  expect_texts(run_workers("start", {.arguments = {"*:COHORT_IP_FAMILY=5"}}),
               {"ValueError: [cohort] environment variable COHORT_IP_FAMILY=\"5\" must be 4 or 6",
                "ValueError: [cohort] environment variable COHORT_IP_FAMILY=\"5\" must be 4 or 6"});
}

TEST(Start, Ipv6AddressesWork) {
  if (!std::filesystem::exists("/proc/net/if_inet6")) GTEST_SKIP() << "this host has no IPv6";
  expect_texts(run_workers("start", {.arguments = {"*:MASTER_ADDR=::1", "*:COHORT_IP_FAMILY=6"}}),
               {"started", "started"});
  const base::PortReservation port = base::reserve_port().value();
  expect_texts(run_workers("start", {.arguments = {"*:@url=tcp://[::1]:" + std::to_string(port.port)}}),
               {"started", "started"});
}

TEST(Start, FamilyThatTheMasterLacksMessage) {
  const auto results = run_workers("start", {.arguments = {"*:COHORT_IP_FAMILY=6"}});
  const std::string cause =
      "\"127.0.0.1\" does not resolve to an IPv6 address: Address family for hostname not supported";
  const std::string hint =
      "\n  hint: unset COHORT_IP_FAMILY, or give an address of that family in MASTER_ADDR and MASTER_PORT";
  expect_texts(
      results,
      {"ValueError: [cohort] rank 0 of 2 on HOST cannot host the store: " + cause + hint,
       "DistNetworkError: [cohort] rank 1 of 2 on HOST cannot reach the store at 127.0.0.1:PORT\n  caused by: " +
           cause + "; T" + hint});
}

TEST(Start, HostNameThatDoesNotLeadToRankZeroMessage) {
  const auto results = run_workers("start", {.arguments = {"*:MASTER_ADDR=no-such-host.invalid", "*:@timeout=3000"}});
  expect_texts(
      results,
      {"DistStoreError: [cohort] init_process_group timed out: rank 1 never arrived\n"
       "  rank 0 (pid P on HOST) waited 3.0 s at no-such-host.invalid:PORT, which it hosts\n"
       "  arrived: rank 0 (pid P on HOST)\n"
       "  caused by: Timed out after 3 seconds waiting for clients. 1/2 clients joined.\n"
       "  caused by: \"no-such-host.invalid\" does not resolve to an address: Name or service not known\n"
       "  hint: see whether rank 1 started, and with the same meeting place; if so, raise "
       "InitOptions::timeout",
       "DistNetworkError: [cohort] rank 1 of 2 on HOST cannot reach the store at no-such-host.invalid:PORT\n"
       "  caused by: \"no-such-host.invalid\" does not resolve to an address: Name or service not known; T\n"
       "  hint: give a name that this host can resolve, or a numeric address, in MASTER_ADDR and MASTER_PORT"});
}

TEST(Start, WorksAgainWithTheSameStore) {
  const AgentStore agent;
  expect_texts(run_workers("start", {.world_size = 3, .arguments = agent.arguments({"*:@again=100000"})}),
               {"started\nstarted", "started\nstarted", "started\nstarted"});
}

TEST(Start, CanBeTriedAgainAfterATimeOut) {
  const test::TemporaryFolder folder;
  const AgentStore agent;
  Workers workers(
      "start", {.arguments = agent.arguments({"0:@again=100000", "0:@timeout=2000", "1:@after=" + (folder / "told")})});
  workers.wait_for_output(0, "InitOptions::timeout\n");
  std::ofstream(folder / "told") << "time is over";
  const auto results = workers.wait();
  EXPECT_THAT(results[0].output, testing::EndsWith("InitOptions::timeout\nstarted\n"));
  EXPECT_THAT(results[1].output, testing::EndsWith("started\n"));
}

COHORT_WORKER(one_accelerator) {
  const int rank = std::stoi(base::get_env("RANK").value());
  const auto store = c10::make_intrusive<c10d::TCPStore>(
      "127.0.0.1", c10d::TCPStoreOptions{.port = static_cast<uint16_t>(std::stoi(base::get_env("MASTER_PORT").value())),
                                         .isServer = rank == 0,
                                         .numWorkers = 2});
  std::cout << start_error([&] {
    comm::check_membership({.store = store,
                            .rank = rank,
                            .world_size = 2,
                            .timeout = kHangLimit,
                            .plan = {},
                            .accelerator = "GPU-made-up"});
  }) << "\n" << std::flush;
  store->set("done/" + std::to_string(rank), std::vector<uint8_t>{1});
  if (rank == 0) store->wait({"done/1"}, kHangLimit);
}

TEST(Start, TwoRanksWithOneAcceleratorMessage) {
  const std::string text =
      "ValueError: [cohort] two ranks use one accelerator, GPU-made-up\n  rank 0 (pid P on HOST)\n  rank 1 (pid P on "
      "HOST)\n"
      "  hint: give each rank of a host its own device, by its LOCAL_RANK for instance";
  expect_texts(run_workers("one_accelerator"), {text, text});
}

COHORT_WORKER(stays_out_of_new_group) {
  init_process_group("gloo");
  std::cout << (get_rank() == 0 ? start_error([] {
    new_group({0, 1}, {.timeout = std::chrono::seconds(3)});
  })
                                : "out")
            << "\n"
            << std::flush;
  barrier();
}

TEST(Start, RankThatNeverCallsNewGroupMessage) {
  const auto results = run_workers("stays_out_of_new_group");
  results.expect_success();
  const auto text =
      std::regex_replace(plain(results[0].output), std::regex("caused by: (?!rank 1)[^\n]*"), "caused by: GLOO");
  EXPECT_EQ(text,
            "DistBackendError: [cohort] group \"1\" of ranks 0 and 1 cannot connect\n"
            "  caused by: rank 1 never arrived\n  caused by: GLOO\n"
            "  hint: see whether rank 1 ended, or created other groups before this one; if not, raise "
            "NewGroupOptions::timeout\n");
}

COHORT_WORKER(ends_before_new_group) {
  init_process_group("gloo");
  barrier();
  if (get_rank() == 1) _exit(3);
  while (!test::is_done(1)) sleep_ms(5);
  std::cout << start_error([] { new_group({0, 1}, {.timeout = std::chrono::seconds(3)}); }) << "\n" << std::flush;
}

COHORT_WORKER(host_ends_before_new_group) {
  init_process_group("gloo");
  barrier();
  if (get_rank() == 0) _exit(0);
  while (!test::is_done(0)) sleep_ms(5);
  std::cout << start_error([] { new_group({1, 2}, {.timeout = std::chrono::seconds(3)}); }) << "\n" << std::flush;
  _exit(0);
}

// To the other one, the first of the two to find out may be gone, too.
TEST(Start, HostOfTheStoreThatEndedBeforeNewGroupMessage) {
  const auto results = run_workers("host_ends_before_new_group", {.world_size = 3});
  std::vector<std::string> texts;
  for (const int rank : {1, 2}) {
    texts.push_back(
        std::regex_replace(plain(results[rank].output), std::regex("caused by: (?!rank 0)[^\n]*"), "caused by: STORE"));
  }
  EXPECT_THAT(texts,
              testing::Contains(
                  "DistBackendError: [cohort] group \"1\" of ranks 1 and 2 cannot connect\n"
                  "  caused by: rank 0 (pid P on HOST) has ended\n  caused by: STORE\n"
                  "  hint: let rank 0 wait for the others with barrier(): it hosts the store, which groups need to "
                  "connect\n"))
      << results[1].output << results[2].output;
}

TEST(Start, RankThatEndedBeforeNewGroupMessage) {
  const auto results = run_workers("ends_before_new_group");
  const auto text =
      std::regex_replace(plain(results[0].output), std::regex("caused by: (?!rank 1)[^\n]*"), "caused by: GLOO");
  EXPECT_EQ(text,
            "DistBackendError: [cohort] group \"1\" of ranks 0 and 1 cannot connect\n"
            "  caused by: rank 1 (pid P on HOST) has ended\n  caused by: GLOO\n"
            "  hint: look at the output of rank 1 for the reason\n");
}

}  // namespace
}  // namespace cohort
