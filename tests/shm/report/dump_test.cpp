#include "cohort/shm/report/dump.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "cohort/base/file/file.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "cohort/shm/engine/group.h"
#include "cohort/shm/report/registry.h"
#include "cohort/shm/trace/trace.h"
#include "tests/shm/ranks.h"
#include "tests/support/environment.h"
#include "tests/support/rank_processes.h"
#include "tests/support/temporary_folder.h"

namespace cohort::shm {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::TemporaryFolder;
using test::worker_arguments;
using testing::HasSubstr;

/// The memory of a group whose ranks are all this process.
class FakeGroup {
 public:
  explicit FakeGroup(int world_size) : layout_{world_size, 4096} {
    memory_ = ::mmap(nullptr, layout_.num_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int rank = 0; rank < world_size; ++rank) {
      segment().block(rank).peer.pid = ::getpid();
      segment().block(rank).presence.store(kJoined);
    }
  }
  ~FakeGroup() { ::munmap(memory_, layout_.num_bytes()); }
  FakeGroup(const FakeGroup&) = delete;
  FakeGroup& operator=(const FakeGroup&) = delete;
  Segment segment() const { return {static_cast<std::byte*>(memory_), layout_}; }

 private:
  Layout layout_;
  void* memory_;
};

std::vector<std::string> files_in(const TemporaryFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::chrono::steady_clock::time_point hang_limit() { return std::chrono::steady_clock::now() + 100s; }

/// Blocks until the file is there.
bool comes(const std::string& path) {
  const auto end = hang_limit();
  while (std::chrono::steady_clock::now() < end) {
    if (std::filesystem::exists(path)) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

std::string text_in(const std::string& path) { return base::read_file(path).value(); }

TEST(Dump, WritesTextJsonChromeTraceAndPickle) {
  const FakeGroup group(2);
  const TracedGroup rank_1(group.segment(), {.name = "0", .description = "default_pg", .rank = 1, .global_ranks = {}});
  Trace trace(group.segment().trace_area(1));
  trace.begin({.kind = OpKind::kBarrier});
  const TemporaryFolder folder;
  EXPECT_EQ(dump_traces(folder / "new/run_"), folder / "new/run_1.txt");
  const TemporaryFolder other;
  EXPECT_EQ(dump_traces(other / "run_", "a test"), other / "run_1.txt");
  EXPECT_EQ(files_in(other), (std::vector<std::string>{"run_1.json", "run_1.trace.json", "run_1.txt", "torch_run_1"}));
  for (const std::string& name : files_in(other)) {
    struct stat status {};
    ASSERT_EQ(::stat((other / name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600) << name;
  }
  EXPECT_THAT(text_in(other / "run_1.txt"),
              HasSubstr("written because of a test\n\ngroup \"default_pg\" (name \"0\"), 2 ranks\n"));
  EXPECT_EQ(json::parse(text_in(other / "run_1.json"))["entries"][0]["profiling_name"], "shm:barrier");
  EXPECT_EQ(json::parse(text_in(other / "run_1.trace.json"))["traceEvents"].size(), 4 + 2 + 1);
}

TEST(Dump, NamesFilesByTheRankInTheJob) {
  const FakeGroup group(2);
  const FakeGroup subgroup(1);
  const TracedGroup first(group.segment(), {.name = "0", .description = "", .rank = 1, .global_ranks = {4, 6}});
  const TracedGroup second(subgroup.segment(), {.name = "1", .description = "", .rank = 0, .global_ranks = {6}});
  EXPECT_EQ(read_process_trace("").rank, 6);
  EXPECT_EQ(read_process_trace("").groups.size(), 2);
  const test::Environment environment(std::map<std::string, std::string>{{"RANK", "9"}});
  EXPECT_EQ(read_process_trace("").rank, 9);
}

TEST(Dump, RanksThatAreThreadsShareAFile) {
  const FakeGroup group(2);
  const TracedGroup first(group.segment(), {.name = "0", .description = "", .rank = 0, .global_ranks = {}});
  const TracedGroup second(group.segment(), {.name = "0", .description = "", .rank = 1, .global_ranks = {}});
  const TemporaryFolder folder;
  const std::string pid = std::to_string(::getpid());
  EXPECT_EQ(dump_traces(folder / "run_"), folder / ("run_pid" + pid + ".txt"));
  EXPECT_EQ(files_in(folder), (std::vector<std::string>{"run_pid" + pid + ".json", "run_pid" + pid + ".trace.json",
                                                        "run_pid" + pid + ".txt", "torch_run_0", "torch_run_1"}));
  EXPECT_EQ(read_process_trace("").groups.size(), 1);
}

TEST(Dump, ForgetsAGroupThatIsGone) {
  {
    const FakeGroup group(1);
    const TracedGroup member(group.segment(), {.name = "0", .description = "", .rank = 0, .global_ranks = {3}});
    EXPECT_EQ(read_process_trace("").rank, 3);
  }
  EXPECT_TRUE(read_process_trace("").groups.empty());
}

TEST(Dump, AFolderThatCannotBeMadeIsAWarning) { EXPECT_EQ(dump_traces("/proc/cannot/run_"), ""); }

TEST(Dump, PrefixesComeFromTheEnvironment) {
  const FakeGroup group(1);
  const TracedGroup member(group.segment(), {.name = "0", .description = "", .rank = 0, .global_ranks = {}});
  const TemporaryFolder folder;
  {
    const test::Environment environment(std::map<std::string, std::string>{{"TMPDIR", folder.path()}});
    const std::string expected =
        fmt::format("{}/cohort_trace_{}/{}_rank_0.txt", folder.path(), ::geteuid(), ::getppid());
    EXPECT_EQ(dump_traces(), expected);
    // Not in a folder that others can write to.
    std::filesystem::permissions(std::filesystem::path(expected).parent_path(), std::filesystem::perms::all);
    EXPECT_THAT(dump_traces(), testing::MatchesRegex(fmt::format("{}/cohort_trace_{}_....../{}_rank_0.txt",
                                                                 folder.path(), ::geteuid(), ::getppid())));
  }
  const test::Environment environment(
      {{"COHORT_TRACE_FILE", folder / "ours_"}, {"TORCH_FR_DUMP_TEMP_FILE", folder / "torchs_"}});
  EXPECT_EQ(dump_traces(), folder / "ours_0.txt");
  EXPECT_TRUE(std::filesystem::exists(folder / "torchs_0"));
}

/// Two ranks' worth of every operation. Ends with an all_reduce that rank 1 leaves out, if it `stays_away`.
void run_every_operation(Group& group, bool stays_away) {
  std::vector<float> data(64, 1);
  std::vector<float> other(64);
  const Elements part{DType::kFloat32, 8};
  void* const outs[] = {other.data(), other.data() + 8};
  const void* const ins[] = {data.data(), data.data() + 8};
  const size_t counts[] = {8, 8};
  void* memory = nullptr;
  const auto require = [](const Outcome& outcome) {
    if (outcome) throw std::runtime_error(outcome->causes.front());
  };
  for (int step = 0; step < 3; ++step) require(group.all_reduce(data.data(), data.data(), part, {}));
  require(group.broadcast(data.data(), part, 1));
  require(group.reduce(data.data(), data.data(), part, {}, 1));
  require(group.all_gather(data.data(), outs, part));
  require(group.gather(data.data(), outs, part, 0));
  require(group.scatter(ins, data.data(), part, 0));
  require(group.reduce_scatter(ins, other.data(), part, {}));
  require(group.all_to_all(ins, counts, outs, counts, DType::kFloat32));
  require(group.allocate(4096, &memory));
  Group::release(memory);
  const bool sends = group.rank() == 0;
  group.trace().complete(group.trace().begin({.kind = sends ? OpKind::kSend : OpKind::kRecv,
                                              .dtype = DType::kFloat32,
                                              .is_point_to_point = true,
                                              .root = 1 - group.rank(),
                                              .num_inputs = 8,
                                              .num_outputs = 8}));
  require(group.barrier());
  if (!stays_away) return;
  if (group.rank() == 1) {
    std::this_thread::sleep_for(3s);  // longer than the other's timeout, on a busy machine, too
  } else if (!group.all_reduce(data.data(), data.data(), part, {}, {.timeout = 200ms})) {
    throw std::runtime_error("all_reduce alone has succeeded");
  }
}

/// RANK joins a group at the address given; the second argument says what it does then.
COHORT_WORKER(traced_rank) {
  ::dup2(STDOUT_FILENO, STDERR_FILENO);
  const int rank = std::stoi(base::get_env("RANK").value());
  GroupOptions options;
  options.name = "default_pg";
  options.address = worker_arguments().at(0);
  options.rank = rank;
  options.world_size = 2;
  auto group = Group::join(options);
  if (!group) throw std::runtime_error(group.error().describe());
  const std::string act = worker_arguments().at(1);
  (*group)->barrier();
  std::cout << "joined\n";
  if (act == "hangs") {
    if (rank == 0) (*group)->barrier();
    for (;;) ::pause();
  }
  if (act == "dumps" || act == "stays away") {
    run_every_operation(**group, act == "stays away");
    std::cout << dump_traces() << "\n";
  }
  if (act == "times out") {
    while (rank == 1) ::pause();
    const Outcome outcome = (*group)->barrier({.timeout = 100ms});
    std::cout << "hint: " << outcome->hint << "\nagain: " << note_timeout("barrier") << "\n";
  }
}

test::WorkerOptions traced(const std::string& act, std::map<std::string, std::string> environment) {
  return {.environment = std::move(environment), .arguments = {new_address(), act}};
}

TEST(DumpSignal, WritesWhatEveryRankDoes) {
  const TemporaryFolder folder;
  test::Workers workers("traced_rank", traced("hangs", {{"COHORT_TRACE_FILE", folder / "run_"}}));
  workers.wait_for_output(0, "joined");
  workers.wait_for_output(1, "joined");
  // Until rank 0 is in its second barrier.
  std::string text;
  const auto end = hang_limit();
  while (text.find("#2 barrier: started") == std::string::npos && std::chrono::steady_clock::now() < end) {
    const std::string where =
        fmt::format("[cohort] pid {}: flight recorder written to {} (and .json, .trace.json beside it)", workers.pid(1),
                    folder / "run_1.txt");
    std::filesystem::remove(folder / "run_1.txt");
    workers.signal(1, SIGUSR1);
    workers.wait_for_output(1, where);
    ASSERT_TRUE(comes(folder / "run_1.txt"));
    text = text_in(folder / "run_1.txt");
  }
  EXPECT_THAT(text, HasSubstr("written because of signal 10 (SIGUSR1)\n"));
  EXPECT_THAT(text, HasSubstr("  collective #2 is not called by all ranks:\n    rank 0 calls barrier\n"
                              "    rank 1 has not called it; its last one is #1 barrier, completed, "));
  // Both still run. One that was killed is told apart, and its part is written for it.
  workers.signal(0, SIGKILL);
  while (text.find("is gone") == std::string::npos && std::chrono::steady_clock::now() < end) {
    std::filesystem::remove(folder / "run_1.txt");
    workers.signal(1, SIGUSR1);
    ASSERT_TRUE(comes(folder / "run_1.txt"));
    text = text_in(folder / "run_1.txt");
  }
  EXPECT_THAT(text, HasSubstr(fmt::format("pid {} on ", workers.pid(0))));
  EXPECT_THAT(text, HasSubstr("is gone  #2 barrier: started"));
  EXPECT_TRUE(comes(folder / "torch_run_0"));
  workers.signal(1, SIGKILL);
  workers.wait();
}

TEST(Dump, OfEveryOperation) {
  const TemporaryFolder folder;
  const auto results = test::run_workers("traced_rank", traced("dumps", {{"COHORT_TRACE_FILE", folder / "run_"}}));
  results.expect_success();
  std::vector<std::string> operations;
  const json entries = json::parse(text_in(folder / "run_0.json"))["entries"];
  for (const json& entry : entries) {
    if (entry["rank"] != 0) continue;
    operations.push_back(entry["profiling_name"].get<std::string>().substr(4));
    EXPECT_EQ(entry["state"], "completed");
  }
  EXPECT_EQ(operations, (std::vector<std::string>{"barrier", "all_reduce", "all_reduce", "all_reduce", "broadcast",
                                                  "reduce", "all_gather", "gather", "scatter", "reduce_scatter",
                                                  "all_to_all", "shm_empty", "send 0->1", "barrier"}));
}

TEST(DumpSignal, CanBeAnotherOrNone) {
  for (const char* name : {"0", "SIGUSR2"}) {
    test::Workers workers("traced_rank", traced("hangs", {{"COHORT_TRACE_SIGNAL", name}}));
    workers.wait_for_output(0, "joined");
    workers.wait_for_output(1, "joined");
    workers.signal(0, SIGUSR1);
    workers.signal(1, SIGUSR1);
    EXPECT_EQ(workers.wait()[0].exit_code, -SIGUSR1);
  }
}

COHORT_WORKER(has_own_handler) {
  std::signal(SIGUSR1, [](int) { ::_exit(42); });
  const FakeGroup group(1);
  const TracedGroup member(group.segment(), {.name = "0", .description = "", .rank = 0, .global_ranks = {}});
  ::raise(SIGUSR1);
}

TEST(DumpSignal, LeavesTheProgramsOwnHandler) {
  EXPECT_EQ(test::run_workers("has_own_handler", {.world_size = 1})[0].exit_code, 42);
}

TEST(DumpAtExit, HoldsGroupsThatAreGone) {
  const TemporaryFolder folder;
  const auto results = test::run_workers(
      "traced_rank", traced("ends", {{"COHORT_TRACE_FILE", folder / "run_"}, {"COHORT_TRACE_DUMP", "exit"}}));
  results.expect_success();
  EXPECT_THAT(results[1].output, HasSubstr("flight recorder written to " + folder / "run_1.txt"));
  const json dump = json::parse(text_in(folder / "run_1.json"));
  EXPECT_EQ(dump["reason"], "the end of the process");
  EXPECT_EQ(dump["entries"].size(), 2);
  EXPECT_EQ(dump["rank"], 1);
}

/// What rank 0 prints about its barrier, to which rank 1 does not come.
std::string run_into_timeout(std::map<std::string, std::string> environment) {
  test::Workers workers("traced_rank", traced("times out", std::move(environment)));
  workers.wait_for_output(0, "again: ");
  workers.signal(1, SIGKILL);
  const test::WorkerResults results = workers.wait();
  EXPECT_EQ(results[0].exit_code, 0) << results[0].errors;
  return results[0].output;
}

TEST(DumpOnTimeout, IsNamedByTheErrorAndDoneOnce) {
  const TemporaryFolder folder;
  const std::string path = folder / "run_0.txt";
  EXPECT_THAT(run_into_timeout({{"COHORT_TRACE_FILE", folder / "run_"}, {"COHORT_TRACE_DUMP", "timeout"}}),
              HasSubstr("hint: see what each rank of this host did in " + path + "\nagain: " + path + "\n"));
  EXPECT_THAT(text_in(path), HasSubstr("written because of a timeout: barrier on group \"default_pg\"\n"));
  EXPECT_THAT(text_in(path), HasSubstr("#2 barrier: started"));
}

TEST(DumpOnTimeout, CanBeSwitchedOff) {
  const TemporaryFolder folder;
  for (const auto& [word, pytorchs_word] : std::map<std::string, std::string>{{"never", "1"}, {"", "0"}}) {
    EXPECT_THAT(run_into_timeout({{"COHORT_TRACE_FILE", folder / "run_"},
                                  {"COHORT_TRACE_DUMP", word},
                                  {"TORCH_NCCL_DUMP_ON_TIMEOUT", pytorchs_word}}),
                HasSubstr("hint: \nagain: \n"));
    EXPECT_TRUE(files_in(folder).empty());
  }
}

}  // namespace
}  // namespace cohort::shm
