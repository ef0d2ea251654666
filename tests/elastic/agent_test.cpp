// The agent's work over several rounds: restarts, new stores, nodes that come and go. One host, real processes; workers are
// shell scripts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/machine/cpu_topology.h"
#include "cohort/base/net/port.h"
#include "cohort/base/text/text.h"
#include "cohort/elastic/agent/launch.h"
#include "cohort/elastic/plan/cpu_placement.h"
#include "cohort/store/tcp/tcp_server.h"
#include "tests/elastic/launcher.h"
#include "tests/rendezvous/played_leader.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/wait_until_gone.h"

namespace cohort::elastic {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Agent, RestartsAllWorkersUntilTheyEndWell) {
  Launcher launcher(
      {"--nproc-per-node=2", "--max-restarts=3"},
      "echo rank=$RANK count=$TORCHELASTIC_RESTART_COUNT max=$TORCHELASTIC_MAX_RESTARTS store=$MASTER_PORT; "
      "if [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ]; then exit 3; fi; "
      "[ $TORCHELASTIC_RESTART_COUNT = 2 ] || exec sleep 1000");
  EXPECT_EQ(launcher.finish(), 0);
  EXPECT_EQ(values_of(launcher.output(), "count"), (std::set<std::string>{"0", "1", "2"}));
  EXPECT_EQ(values_of(launcher.output(), "max"), (std::set<std::string>{"3"}));
  EXPECT_EQ(values_of(launcher.output(), "store").size(), 3u) << "a store of its own for each round";
  EXPECT_THAT(launcher.errors(), HasSubstr("[cohort] warning: restarting the workers, restart 2 of 3: rank 1 (pid "));
  EXPECT_THAT(launcher.errors(), Not(HasSubstr("FAILED")));
}

TEST(Agent, EndsWhenNoRestartIsLeft) {
  Launcher launcher({"--max-restarts=2"}, "echo start; exit 3");
  EXPECT_EQ(launcher.finish(), 1);
  EXPECT_EQ(count_of(launcher.output(), "start"), 3);
  EXPECT_THAT(launcher.errors(), HasSubstr("restart 1 of 2"));
  EXPECT_THAT(launcher.errors(), HasSubstr("\nsh FAILED\n"));
}

TEST(Agent, EachAttemptKeepsItsLogs) {
  const test::TemporaryFolder folder;
  Launcher launcher({"--max-restarts=1", "-r3", "--log-dir=" + folder.path()},
                    "echo attempt $TORCHELASTIC_RESTART_COUNT; exit 1");
  EXPECT_EQ(launcher.finish(), 1);
  const std::string run = std::filesystem::directory_iterator(folder.path())->path().string();
  EXPECT_EQ(*base::read_file(run + "/attempt_0/0/stdout.log"), "attempt 0\n");
  EXPECT_EQ(*base::read_file(run + "/attempt_1/0/stdout.log"), "attempt 1\n");
}

TEST(Agent, WaitsBeforeARestartButNotForever) {
  Launcher launcher({"--max-restarts=5", "--restart-backoff=1000"}, "echo start; exit 1");
  launcher.wait_for_errors("restart 1 of 5");
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.finish(), 1);
  EXPECT_EQ(count_of(launcher.output(), "start"), 1);
  EXPECT_THAT(launcher.errors(), HasSubstr("[cohort] error: sh was stopped by SIGTERM"));
}

TEST(Agent, WaitsTwiceAsLongBeforeTheNextRestart) {
  Launcher launcher({"--max-restarts=2", "--restart-backoff=0.2"}, "cut -d ' ' -f 1 /proc/uptime; exit 1");
  EXPECT_EQ(launcher.finish(), 1);
  std::istringstream starts(launcher.output());
  double first = 0, second = 0, third = 0;
  ASSERT_TRUE(starts >> first >> second >> third) << launcher.output();
  EXPECT_GE(second - first, 0.19);  // the clock has steps of 0.01
  EXPECT_GE(third - second, 0.39);
}

TEST(Agent, PassesUserSignalsOnAndGoesOn) {
  Launcher launcher(
      {"--nproc-per-node=2"},
      "trap 'echo got it $RANK; done=1' USR1; echo ready$LOCAL_RANK; until [ $done ]; do sleep 0.05; done");
  launcher.wait_for_output("ready0");
  launcher.wait_for_output("ready1");
  launcher.signal(SIGUSR1);
  EXPECT_EQ(launcher.finish(), 0);
  EXPECT_EQ(count_of(launcher.output(), "got it"), 2);
}

TEST(Agent, StoppedWorkerIsReported) {
  Launcher launcher({}, "echo pid=$$$$; exec sleep 1000");
  launcher.wait_for_output("pid=");
  launcher.wait_for_output("\n");
  const std::string pid = std::to_string(launcher.number_after("pid="));
  ASSERT_EQ(::kill(launcher.number_after("pid="), SIGSTOP), 0);
  launcher.wait_for_errors("rank 0 (pid " + pid + ") is stopped (SIGSTOP or a debugger); kill -CONT " + pid +
                           " resumes it\n");
  ASSERT_EQ(::kill(launcher.number_after("pid="), SIGCONT), 0);
  launcher.wait_for_errors("rank 0 (pid " + pid + ") goes on\n");
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.finish(), 1);
}

TEST(Agent, FilteredLinesGoToAFileToo) {
  const test::TemporaryFolder folder;
  Launcher launcher(
      {"--nproc-per-node=2", "--tee=3", "--log-dir=" + folder.path(), "--duplicate-stdout-filters=apple,kiwi"},
      "echo an apple; echo a pear; echo kiwi; echo an apple >&2");
  EXPECT_EQ(launcher.finish(), 0);
  const std::string attempt = std::filesystem::directory_iterator(folder.path())->path().string() + "/attempt_0/";
  const std::string filtered = *base::read_file(attempt + "filtered_stdout.log");
  for (const char* line :
       {"[default0]:an apple\n", "[default0]:kiwi\n", "[default1]:an apple\n", "[default1]:kiwi\n"}) {
    EXPECT_THAT(filtered, HasSubstr(line));
  }
  EXPECT_THAT(filtered, Not(HasSubstr("pear")));
  EXPECT_FALSE(std::filesystem::exists(attempt + "filtered_stderr.log"));
  EXPECT_THAT(launcher.output(), HasSubstr("[default1]:a pear\n"));
}

TEST(Agent, EventsAreJsonLines) {
  Launcher launcher({"--event-log-handler=console", "--rdzv-id=seven"}, "exit 0");
  EXPECT_EQ(launcher.finish(), 0);
  EXPECT_THAT(launcher.errors(), HasSubstr("\"name\":\"torchelastic.worker.status.START\""));
  EXPECT_THAT(launcher.errors(), HasSubstr("\"name\":\"torchelastic.worker.status.SUCCEEDED\",\"source\":\"AGENT\""));
}

TEST(Agent, EventsHaveTheDurationsOfItsPhases) {
  Launcher launcher(
      {"--nproc-per-node=2", "--event-log-handler=console", "--max-restarts=1"},
      "if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then exit 0; fi; [ $RANK = 0 ] || exit 3; exec sleep 1000");
  EXPECT_EQ(launcher.finish(), 0);
  for (const auto& [phase, times] : std::map<std::string, int>{
           {"rendezvous", 2}, {"start_workers", 2}, {"run_workers", 2}, {"stop_workers", 1}, {"exit_barrier", 1}}) {
    EXPECT_EQ(count_of(launcher.errors(), "\"name\":\"torchelastic.agent." + phase + "\",\"source\":\"AGENT\""), times)
        << phase;
  }
  EXPECT_EQ(count_of(launcher.errors(), "\\\"duration_ms\\\":"), 8);
}

TEST(Agent, LaunchPassesLocalRankAsAnArgument) {
  const test::TemporaryFolder folder;
  const std::string program = folder / "work";
  ASSERT_TRUE(base::write_file_atomically(program, "#!/bin/sh\necho \"$1 $2\"\n"));
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  Launcher launcher({launcher_path(), "launch", "--nproc-per-node=2", program, "mine"});
  EXPECT_EQ(launcher.finish(), 0);
  EXPECT_THAT(launcher.output(), HasSubstr("--local-rank=0 mine\n"));
  EXPECT_THAT(launcher.output(), HasSubstr("--local-rank=1 mine\n"));
  EXPECT_THAT(launcher.errors(),
              HasSubstr("cohort launch passes a --local-rank argument, as python -m torch.distributed.launch does"));
  Launcher by_environment({launcher_path(), "launch", "--use-env", program, "mine"});
  EXPECT_EQ(by_environment.finish(), 0);
  EXPECT_EQ(by_environment.output(), "mine \n");
}

/// "0-2,5", as the kernel writes a list of CPUs.
std::string as_kernel_list(const std::vector<int>& cpus) {
  std::string text;
  for (size_t i = 0, end = 0; i < cpus.size(); i = end) {
    for (end = i + 1; end < cpus.size() && cpus[end] == cpus[end - 1] + 1;) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (end > i + 1) text += "-" + std::to_string(cpus[end - 1]);
  }
  return text;
}

/// What two workers say, by local rank: where they may run.
std::map<int, std::string> cpus_of_workers(const std::string& flag) {
  Launcher launcher(
      {"--nproc-per-node=2", flag},
      "while read name value; do [ $name = Cpus_allowed_list: ] && echo rank=$LOCAL_RANK cpus=$value; done "
      "</proc/self/status; true");
  EXPECT_EQ(launcher.finish(), 0) << launcher.errors();
  std::map<int, std::string> cpus;
  for (const std::string& line : base::split(base::trim(launcher.output()), '\n')) {
    const auto words = base::split(line, ' ');
    if (words.size() == 2) cpus[std::stoi(words[0].substr(5))] = words[1].substr(5);
  }
  return cpus;
}

TEST(Agent, WorkersRunWhereTheyAreBoundTo) {
  const std::map<std::string, CpuBinding> bindings = {{"--cpu-bind=cores", CpuBinding::kCores},
                                                      {"--cpu-bind=numa", CpuBinding::kNode},
                                                      {"--numa-binding=exclusive", CpuBinding::kExclusive}};
  for (const auto& [flag, binding] : bindings) {
    const auto placed = place_workers(binding, 2, base::read_cpus(base::allowed_cpus()), base::gpu_numa_nodes());
    const std::map<int, std::string> expected = {{0, as_kernel_list(placed[0])}, {1, as_kernel_list(placed[1])}};
    EXPECT_EQ(cpus_of_workers(flag), expected) << flag;
  }
  const auto everywhere = as_kernel_list(base::allowed_cpus());
  const std::map<int, std::string> unbound = {{0, everywhere}, {1, everywhere}};
  EXPECT_EQ(cpus_of_workers("--cpu-bind=none"), unbound);
}

TEST(Agent, WorkersUseTheAllocatorTheyAreGiven) {
  const std::string program = "echo allocator=$COHORT_SHARED_ALLOCATOR.";
  Launcher shared({"--allocator=shared"}, program);
  EXPECT_EQ(shared.finish(), 0) << shared.errors();
  EXPECT_EQ(shared.output(), "allocator=1.\n");
  Launcher ordinary({}, program);
  EXPECT_EQ(ordinary.finish(), 0) << ordinary.errors();
  EXPECT_EQ(ordinary.output(), "allocator=.\n");
  Launcher wrong({"--allocator=mimalloc"}, program);
  EXPECT_NE(wrong.finish(), 0);
  EXPECT_THAT(wrong.errors(), HasSubstr("--allocator=mimalloc must be one of default, shared, tcmalloc, jemalloc"));
}

TEST(Agent, WorkersSeeTheGpusTheyAreGiven) {
  Launcher all({"--nproc-per-node=2", "--gpus=5,7"}, "echo gpus=$CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(all.finish(), 0) << all.errors();
  EXPECT_EQ(all.output(), "gpus=5,7\ngpus=5,7\n");
  Launcher own({"--nproc-per-node=2", "--gpus=5,7", "--virtual-local-rank"},
               "echo rank$RANK-gpus=$CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(own.finish(), 0) << own.errors();
  EXPECT_THAT(own.output(), testing::AllOf(HasSubstr("rank0-gpus=5\n"), HasSubstr("rank1-gpus=7\n")));
}

// By the flag, not by the order in which they come: the node of the lower address is node 0, and workers meet there.
TEST(Agent, NodesAreFoundUnderTheirLocalAddresses) {
  const std::string at = endpoint();
  const std::string script = "echo node=$GROUP_RANK at=$MASTER_ADDR";
  Launcher first(node(at, "2", {"--local-addr=127.0.0.3"}), script);
  Launcher second(node(at, "2", {"--local-addr=127.0.0.2"}), script);
  EXPECT_EQ(first.finish(), 0) << first.errors();
  EXPECT_EQ(second.finish(), 0) << second.errors();
  EXPECT_EQ(first.output(), "node=1 at=127.0.0.2\n");
  EXPECT_EQ(second.output(), "node=0 at=127.0.0.2\n");
}

TEST(Agent, TwoNodesFormOneJob) {
  const std::string at = endpoint();
  const std::string script =
      "echo rank=$RANK of=$WORLD_SIZE group=$GROUP_RANK/$GROUP_WORLD_SIZE store=$MASTER_ADDR:$MASTER_PORT";
  Launcher first(node(at, "2", {"--nproc-per-node=1"}), script);
  Launcher second(node(at, "2", {"--nproc-per-node=3"}), script);
  EXPECT_EQ(first.finish(), 0) << first.errors();
  EXPECT_EQ(second.finish(), 0) << second.errors();
  const std::string output = first.output() + second.output();
  EXPECT_EQ(values_of(output, "rank"), (std::set<std::string>{"0", "1", "2", "3"}));
  EXPECT_EQ(values_of(output, "of"), (std::set<std::string>{"4"}));
  EXPECT_EQ(values_of(output, "group"), (std::set<std::string>{"0/2", "1/2"}));
  EXPECT_EQ(values_of(output, "store").size(), 1u);
}

/// Rank 0 waits; rank 1 fails once rank 0 runs. `first` comes before.
std::string fails_beside_rank_0(const test::TemporaryFolder& folder, const std::string& first) {
  const std::string there = folder / "rank_0_runs";
  return first + "if [ $RANK = 0 ]; then touch " + there + "; exec sleep 1000; fi; until [ -e " + there +
         " ]; do sleep 0.01; done; exit 5";
}

TEST(Agent, FailureOnOneNodeRestartsBoth) {
  const test::TemporaryFolder folder;
  const std::string at = endpoint();
  const std::string script = fails_beside_rank_0(
      folder, "echo count=$TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; ");
  Launcher first(node(at, "2", {"--max-restarts=1"}), script);
  Launcher second(node(at, "2", {"--max-restarts=1"}), script);
  EXPECT_EQ(first.finish(), 0) << first.errors();
  EXPECT_EQ(second.finish(), 0) << second.errors();
  for (const Launcher* launcher : {&first, &second}) {
    EXPECT_EQ(values_of(launcher->output(), "count"), (std::set<std::string>{"0", "1"}));
    EXPECT_THAT(launcher->errors(), HasSubstr("restarting the workers, restart 1 of 1: rank 1 (pid "));
  }
}

TEST(Agent, FailureWithoutRestartsEndsBothAndNamesTheNode) {
  const test::TemporaryFolder folder;
  const std::string at = endpoint();
  const std::string script = fails_beside_rank_0(folder, "");
  Launcher first(node(at, "2"), script);
  Launcher second(node(at, "2"), script);
  EXPECT_EQ(first.finish(), 1);
  EXPECT_EQ(second.finish(), 1);
  const std::string errors = first.errors() + second.errors();
  EXPECT_EQ(count_of(errors, "[cohort] error: the job has failed: rank 1 (pid "), 1) << errors;
  EXPECT_EQ(count_of(errors, ") failed with exit code 5"), 3) << errors;
}

/// Returns the errors of a launcher whose job fails on another node before it has started its own workers. If it is in the round,
/// it knows the other nodes from that; its agent has heard of no node yet.
std::string said_of_a_failure_elsewhere(bool is_in_the_round) {
  namespace rdzv = rendezvous;
  const std::string at = endpoint();
  const int port = std::stoi(base::split(at, ':')[1]);
  const auto server = store::TcpServer::start({.host = "127.0.0.1", .port = port}).value();
  rdzv::PlayedLeader first(port, "first", kHangLimit);
  auto second = first.self;
  second.id = 9;
  Launcher launcher(node(at, "2:3"), "echo it runs");
  std::vector<rdzv::Member> members = {first.self, second, first.arrived(1)};
  if (!is_in_the_round) members.pop_back();
  first.say("news/1", rdzv::News(rdzv::RoundRecord{0, 0, 0, members}));
  first.say("news/2", rdzv::News(rdzv::OverRecord{0, rdzv::RoundOver::Reason::kWorkerFailed, "rank 1 broke", 9, true}));
  EXPECT_EQ(launcher.finish(), 1);
  EXPECT_EQ(launcher.output(), "");
  return launcher.errors();
}

TEST(Agent, FailureElsewhereBeforeTheWorkersStartMessage) {
  EXPECT_EQ(
      said_of_a_failure_elsewhere(/*is_in_the_round=*/true),
      "[cohort] error: the job has failed: rank 1 broke\n  hint: see what the launcher printed on another node\n");
  EXPECT_EQ(said_of_a_failure_elsewhere(/*is_in_the_round=*/false),
            "[cohort] error: the job has failed: rank 1 broke\n");
}

TEST(Agent, LateNodeJoinsByANewRoundWithoutUsingUpARestart) {
  const std::string at = endpoint();
  const std::string script =
      "echo size=$WORLD_SIZE count=$TORCHELASTIC_RESTART_COUNT; [ $WORLD_SIZE = 2 ] || exec sleep 1000";
  Launcher first(node(at, "1:2"), script);
  first.wait_for_output("size=1 count=0");
  Launcher second(node(at, "1:2"), script);
  EXPECT_EQ(first.finish(), 0) << first.errors();
  EXPECT_EQ(second.finish(), 0) << second.errors();
  EXPECT_THAT(first.output(), HasSubstr("size=2 count=0"));
  EXPECT_THAT(first.errors(), HasSubstr("restarting the workers (this does not count against --max-restarts): "));
}

TEST(Agent, KilledAgentsNodeIsLostAndTheOthersGoOn) {
  const std::string at = endpoint();
  const std::string script = "echo size=$WORLD_SIZE pid=$$$$ go; exec sleep 1000";
  Launcher first(node(at, "1:2"), script);
  first.wait_for_output("size=1");
  Launcher second(node(at, "1:2"), script);
  first.wait_for_output("size=2");
  second.wait_for_output("size=2");
  second.wait_for_output("go\n");
  const int worker = second.number_after("pid=");
  second.signal(SIGKILL);
  EXPECT_EQ(second.finish(), -SIGKILL);
  EXPECT_TRUE(test::wait_until_gone(worker));
  first.clear_output();
  first.wait_for_output("size=1");
  first.signal(SIGTERM);
  EXPECT_EQ(first.finish(), 1);
}

/// Of a job of two nodes: the first one, which hosts the store, has workers that end with 0; the second one's agent is killed
/// while its worker still runs.
void expect_failure_where_a_node_was_lost(const Words& first_flags, const Words& second_flags) {
  const test::TemporaryFolder folder;
  const std::string flag = folder.path() + "/go";
  Launcher first(first_flags, "echo runs; until [ -e " + flag + " ]; do sleep 0.01; done");
  Launcher second(second_flags, "echo node=$GROUP_RANK runs; exec sleep 1000");
  first.wait_for_output("runs\n");
  second.wait_for_output("runs\n");
  second.signal(SIGKILL);
  EXPECT_EQ(second.finish(), -SIGKILL);
  ASSERT_TRUE(base::write_file_atomically(flag, ""));
  EXPECT_EQ(first.finish(), 1);
  EXPECT_THAT(first.errors(),
              testing::ContainsRegex(
                  "\\[cohort\\] error: the job has failed: .+ gave no sign of life for 5\\.0 s and may not have "
                  "finished its work; the workers of the other node have ended with 0\n  hint: see what the "
                  "launcher printed on node " +
                  std::to_string(second.number_after("node=")) + " \\(.+\\)\n"));
}

TEST(Agent, ANodeThatIsLostWhenTheOthersAreDoneIsAFailure) {
  const std::string at = endpoint();
  const auto as_host = [&](int is_host) -> Words {
    return {"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=" + at, "--rdzv-id=job",
            "--rdzv-conf=keep_alive_interval=0.2,keep_alive_max_attempt=25,is_host=" + std::to_string(is_host)};
  };
  expect_failure_where_a_node_was_lost(as_host(1), as_host(0));
}

TEST(Agent, ANodeThatIsLostWhenTheOthersAreDoneIsAFailureOfAStaticJob) {
  const std::string at = endpoint();
  const auto of_rank = [&](int rank) -> Words {
    return {"--nnodes=2", "--node-rank=" + std::to_string(rank), "--rdzv-backend=static", "--rdzv-endpoint=" + at,
            "--rdzv-conf=keep_alive_interval=0.2,keep_alive_max_attempt=25"};
  };
  expect_failure_where_a_node_was_lost(of_rank(0), of_rank(1));
}

TEST(Agent, StoppedNodeLeavesAndTheOthersGoOn) {
  const std::string at = endpoint();
  const std::string script = "echo size=$WORLD_SIZE go; exec sleep 1000";
  Launcher first(node(at, "1:2"), script);
  first.wait_for_output("size=1");
  Launcher second(node(at, "1:2"), script);
  first.wait_for_output("size=2");
  second.wait_for_output("size=2");
  second.signal(SIGTERM);
  EXPECT_EQ(second.finish(), 1);
  first.clear_output();
  first.wait_for_output("size=1");
  EXPECT_THAT(first.errors(), HasSubstr("was stopped by SIGTERM"));
  first.signal(SIGTERM);
  EXPECT_EQ(first.finish(), 1);
}

}  // namespace
}  // namespace cohort::elastic
