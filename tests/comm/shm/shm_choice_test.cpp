// Which backend a group gets of which nobody names one.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/shm_empty.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/job/failure.h"
#include "cohort/job/shm_choice.h"
#include "tests/support/marks.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

PLACE_OF_FILE(own)

namespace cohort {
namespace {

using job::Arrival;
using test::run_workers;
using testing::HasSubstr;
using testing::MatchesRegex;

Arrival member(int rank, const std::string& host, const std::string& scope, const std::string& obstacle = "") {
  job::Peer peer;
  peer.host = host;
  peer.shm_scope = scope;
  peer.shm_obstacle = obstacle;
  return {rank, peer, std::nullopt};
}

TEST(ShmChoice, RanksOfOneScopeCanShareMemory) {
  EXPECT_TRUE(job::obstacles_to_shm({member(0, "a", "x"), member(3, "a", "x")}).empty());
}

TEST(ShmChoice, SaysWhichRanksAreInTheWayMessage) {
  const std::vector<std::string> expected{
      "rank 1 is on another host (node-b)", "rank 2 is a Python process without torchcohort",
      "rank 3 cannot share memory: memfd_create: Operation not permitted (EPERM)",
      "rank 4 runs another release of Cohort",
      "rank 5 shares no memory with rank 0: another container or user, or another COHORT_HOST_ID"};
  EXPECT_EQ(job::obstacles_to_shm({member(0, "a", "x"), member(1, "node-b", "y"), Arrival{.rank = 2},
                                   member(3, "a", "", "memfd_create: Operation not permitted (EPERM)"),
                                   member(4, "a", ""), member(5, "a", "z")}),
            expected);
  EXPECT_EQ(
      job::failure_text(job::shm_refusal("dp", {"rank 2 is a Python process without torchcohort"})),
      "[cohort] group \"dp\" cannot use backend \"shm\"\n  caused by: rank 2 is a Python process without torchcohort\n"
      "  hint: use backend \"gloo\"; or name no backend: Cohort then uses \"shm\" where all ranks can share memory");
}

TEST(ShmChoice, PeersTellTheirScope) {
  auto peer = *member(0, "a", "boot/pid:[1]/0/v1").peer;
  const auto text = job::encode(peer);
  EXPECT_EQ(job::decode_peer({text.begin(), text.end()}).shm_scope, "boot/pid:[1]/0/v1");
  peer = *member(0, "a", "", "mmap: Cannot allocate memory (ENOMEM)").peer;
  const auto obstacle = job::encode(peer);
  EXPECT_EQ(job::decode_peer({obstacle.begin(), obstacle.end()}).shm_obstacle, "mmap: Cannot allocate memory (ENOMEM)");
}

void check_all_reduce(const Group& group = {}) {
  auto tensor = at::ones({3});
  all_reduce(tensor, {.group = group});
  REQUIRE(tensor[0].item<float>() == static_cast<float>(get_world_size(group)));
}

COHORT_WORKER(names_no_backend) {
  init_process_group();
  check_all_reduce();
  const auto group = new_group({0, 1});
  if (is_member(group)) check_all_reduce(group);
  const auto named = new_group({}, {.backend = "gloo"});
  REQUIRE(get_backend(named) == "gloo");
  check_all_reduce(named);
  const auto halves = split_group({}, {{0, 1}, {2}});
  check_all_reduce(halves);
  std::cout << get_backend() << " " << get_backend_config() << " " << (is_member(group) ? get_backend(group) : "none")
            << " " << get_backend(halves) << "\n"
            << std::flush;
  destroy_process_group();
}

TEST(ShmChoice, OneHostMeansShm) {
  const auto results = run_workers("names_no_backend", {.world_size = 3});
  results.expect_success();
  EXPECT_EQ(results[0].output, "shm cpu:shm shm shm\n");
  EXPECT_EQ(results[2].output, "shm cpu:shm none shm\n");
}

COHORT_WORKER(names_no_backend_on_two_hosts) {
  if (std::getenv("RANK") == std::string("2")) setenv("COHORT_HOST_ID", "node-b", 1);
  worker_names_no_backend();
}

TEST(ShmChoice, TwoHostsMeanGlooSaidOnceMessage) {
  const auto results =
      run_workers("names_no_backend_on_two_hosts", {.world_size = 3, .environment = {{"COHORT_LOG_LEVEL", "info"}}});
  results.expect_success();
  // The part on one host shares memory.
  EXPECT_EQ(results[0].output, "gloo cpu:gloo shm shm\n");
  EXPECT_EQ(results[2].output, "gloo cpu:gloo none shm\n");
  EXPECT_THAT(results[1].errors,
              HasSubstr("group \"default_pg\": rank 1 of 3, backend cpu:gloo, as rank 2 shares no memory with rank 0: "
                        "another container or user, or another COHORT_HOST_ID\n"));
}

COHORT_WORKER(names_cohort) {
  if (std::getenv("RANK") == std::string(std::getenv("OTHER_HOST"))) setenv("COHORT_HOST_ID", "node-b", 1);
  init_process_group("cohort");
  check_all_reduce();
  const auto pair = new_group({0, 1});
  if (is_member(pair)) check_all_reduce(pair);
  monitored_barrier();
  std::cout << get_backend() << " " << get_backend_config() << " " << (comm::has_shared_memory() ? "shared" : "sent")
            << " " << (comm::has_shared_memory(pair) ? "shared" : "sent") << "\n"
            << std::flush;
  destroy_process_group();
}

TEST(ShmChoice, BackendCohortChoosesInEachGroup) {
  const auto together = run_workers("names_cohort", {.world_size = 3, .environment = {{"OTHER_HOST", "none"}}});
  together.expect_success();
  EXPECT_EQ(together[0].output, "cohort cpu:cohort,cuda:cohort shared shared\n");
  EXPECT_EQ(together[2].output, "cohort cpu:cohort,cuda:cohort shared sent\n");
  const auto apart = run_workers("names_cohort", {.world_size = 3, .environment = {{"OTHER_HOST", "2"}}});
  apart.expect_success();
  EXPECT_EQ(apart[0].output, "cohort cpu:cohort,cuda:cohort sent shared\n");
}

// The system call fails with EPERM from now on, as in a strict sandbox.
void forbid_memfd() {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{sizeof(filter) / sizeof(filter[0]), filter};
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

COHORT_WORKER(one_rank_in_a_sandbox) {
  if (std::getenv("RANK") == std::string("1")) forbid_memfd();
  worker_names_no_backend();
}

TEST(ShmChoice, RankInASandboxMeansGlooMessage) {
  const auto results =
      run_workers("one_rank_in_a_sandbox", {.world_size = 3, .environment = {{"COHORT_LOG_LEVEL", "info"}}});
  results.expect_success();
  EXPECT_EQ(results[0].output, "gloo cpu:gloo gloo gloo\n");
  EXPECT_EQ(results[2].output, "gloo cpu:gloo none shm\n");
  EXPECT_THAT(results[0].errors,
              HasSubstr("backend cpu:gloo, as rank 1 cannot share memory: memfd_create: Operation not permitted "
                        "(EPERM)\n"));
}

// What the ranks found when they tried in small does not hold when they attach: files may be no longer than 64 KiB.
COHORT_WORKER(attaching_fails) {
  if (std::getenv("RANK") == std::string("0")) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{64 << 10, 64 << 10};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  const auto named = test::worker_arguments().empty() ? "" : test::worker_arguments()[0];
  try {
    init_process_group({.backend = named});
    std::cout << get_backend() << "\n" << std::flush;
    check_all_reduce();
    destroy_process_group();
  } catch (const c10::DistBackendError& error) {
    std::cout << error.what_without_backtrace() << "\n" << std::flush;
  }
}

TEST(ShmChoice, FailureToAttachMeansGlooForAllMessage) {
  const auto results = run_workers("attaching_fails", {.world_size = 3, .environment = {{"COHORT_LOG_LEVEL", "info"}}});
  results.expect_success();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(results[rank].output, "gloo\n");
    EXPECT_THAT(results[rank].errors,
                testing::ContainsRegex("backend cpu:gloo, as rank 0: [^\n]*File too large [^\n]*ulimit -f"));
  }
}

TEST(ShmChoice, FailureToAttachEndsANamedBackendOnAllRanksMessage) {
  const auto results = run_workers("attaching_fails", {.world_size = 3, .arguments = {"shm"}});
  results.expect_success();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(
        results[rank].output,
        MatchesRegex("\\[cohort\\] the ranks of group \"default_pg\" cannot share memory\n"
                     "  caused by: rank 0: [^\n]*File too large \\(EFBIG\\); [^\n]* \\(ulimit -f\\)\n"
                     "  hint: use backend \"gloo\"; or name no backend: Cohort then uses \"shm\" where it can\n"));
  }
}

COHORT_WORKER(names_shm_on_two_hosts) {
  if (std::getenv("RANK") == std::string("1")) setenv("COHORT_HOST_ID", "node-b", 1);
  try {
    init_process_group("shm");
    REQUIRE(false);
  } catch (const c10::ValueError& error) {
    std::cout << error.what_without_backtrace() << "\n" << std::flush;
  }
}

TEST(ShmChoice, NamedBackendOnTwoHostsIsRefusedOnAllRanksMessage) {
  const auto results = run_workers("names_shm_on_two_hosts");
  results.expect_success();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(results[rank].output,
              "[cohort] group \"default_pg\" cannot use backend \"shm\"\n"
              "  caused by: rank 1 shares no memory with rank 0: another container or user, or another COHORT_HOST_ID\n"
              "  hint: use backend \"gloo\"; or name no backend: Cohort then uses \"shm\" where all ranks can share "
              "memory\n");
  }
}

COHORT_WORKER(starts_again) {
  for (int i = 0; i < 3; ++i) {
    init_process_group();
    REQUIRE(get_backend() == "shm");
    check_all_reduce();
    check_all_reduce(new_group({}));
    barrier();
    destroy_process_group();
  }
}

const std::map<std::string, std::string> kStoreOfRank0{{"TORCHELASTIC_USE_AGENT_STORE", "False"}};

TEST(ShmChoice, GroupsAreCreatedAgainOverTheSameStore) {
  run_workers("starts_again", {.world_size = 3, .environment = kStoreOfRank0}).expect_success();
}

// The others come to the store of the first group, which rank 0 ends only then. Argument 0: whether it ends itself with it.
COHORT_WORKER(starts_again_before_rank_0) {
  init_process_group();
  barrier();
  if (get_rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    if (test::worker_arguments().at(0) == "ends") ::_exit(0);
  }
  destroy_process_group();
  try {
    init_process_group();
    check_all_reduce();
    barrier();
  } catch (const c10::DistStoreError& error) {
    std::cout << error.what_without_backtrace() << "\n" << std::flush;
  }
}

TEST(ShmChoice, GroupsAreCreatedAgainThoughRank0IsLate) {
  const auto results = run_workers("starts_again_before_rank_0",
                                   {.world_size = 3, .environment = kStoreOfRank0, .arguments = {"goes on"}});
  results.expect_success();
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(results[rank].output, "");
}

TEST(ShmChoice, ARank0ThatHasEndedIsToldWhereTheOthersStartAgainMessage) {
  const auto results =
      run_workers("starts_again_before_rank_0", {.world_size = 2, .environment = kStoreOfRank0, .arguments = {"ends"}});
  EXPECT_THAT(results[1].output,
              testing::MatchesRegex(
                  "\\[cohort\\] init_process_group failed: rank 1 \\(pid [0-9]+ on [^ ]+\\) lost the store at "
                  "127.0.0.1:[0-9]+\n  caused by: rank 0 \\(pid [0-9]+ on [^ ]+\\) has ended\n"
                  "  caused by: [^\n]+\n  still missing: rank 0\n  hint: the process that hosts the store ended; look "
                  "at the output of rank 0, or of "
                  "the launcher\n"));
}

}  // namespace
}  // namespace cohort
