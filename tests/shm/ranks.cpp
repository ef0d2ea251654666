#include "tests/shm/ranks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <new>
#include <thread>

#include "cohort/shm/arena/process_arena.h"

namespace cohort::shm {

GroupOptions group_options(const std::string& address, int rank, int world_size, const RankOptions& options) {
  return {.name = "test",
          .address = address,
          .rank = rank,
          .world_size = world_size,
          .timeout = options.timeout,
          .slot_bytes = options.slot_bytes};
}

namespace {

void run_rank(const GroupOptions& options, const std::function<void(Group&)>& fn) {
  auto group = Group::join(options);
  ASSERT_TRUE(group) << group.error().describe();
  fn(**group);
}

[[noreturn]] void run_child(const GroupOptions& options, const std::function<void(Group&)>& fn, int output,
                            std::atomic<int>& num_joined, const RankOptions& rank_options) {
  dup2(output, STDOUT_FILENO);
  EXPECT_TRUE(rank_options.arena_bytes == 0 || make_process_arena(rank_options.arena_bytes));
  if (rank_options.before_join) rank_options.before_join(options.rank);
  run_rank(options, [&](Group& group) {
    ++num_joined;
    fn(group);
  });
  std::cout << std::flush;
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace

void run_threads(int world_size, const std::function<void(Group&)>& fn, const RankOptions& options) {
  ASSERT_TRUE(options.arena_bytes == 0 || make_process_arena(options.arena_bytes));
  const auto address = new_address();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] { run_rank(group_options(address, rank, world_size, options), fn); });
  }
  for (auto& thread : threads) thread.join();
}

ForkedRanks::ForkedRanks(int world_size, const std::function<void(Group&)>& fn, const RankOptions& options) {
  auto* const shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  num_joined_ = new (shared) std::atomic<int>(0);
  const auto address = new_address();
  std::cout << std::flush;
  for (int rank = 0; rank < world_size; ++rank) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const auto pid = fork();
    if (pid == 0) run_child(group_options(address, rank, world_size, options), fn, ends[1], *num_joined_, options);
    close(ends[1]);
    ranks_.push_back({.pid = pid, .output = ends[0]});
  }
}

ForkedRanks::~ForkedRanks() {
  for (auto& rank : ranks_) {
    if (!rank.is_reaped) {
      kill(rank.pid, SIGKILL);
      waitpid(rank.pid, nullptr, 0);
    }
    close(rank.output);
  }
  munmap(num_joined_, 4096);
}

void ForkedRanks::wait_until_joined() const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (*num_joined_ < world_size() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(*num_joined_, world_size());
}

void ForkedRanks::signal(int rank, int signal_number) { kill(pid(rank), signal_number); }

int ForkedRanks::wait(int rank, std::chrono::seconds limit) {
  auto& entry = ranks_[static_cast<size_t>(rank)];
  if (entry.is_reaped) return entry.status;
  const int pidfd = static_cast<int>(syscall(434 /* pidfd_open */, entry.pid, 0));
  pollfd waiting{pidfd, POLLIN, 0};
  const auto ready = poll(&waiting, 1, static_cast<int>(std::chrono::milliseconds(limit).count()));
  close(pidfd);
  if (ready != 1) {
    ADD_FAILURE() << "rank " << rank << " did not end";
    kill(entry.pid, SIGKILL);
  }
  waitpid(entry.pid, &entry.status, 0);
  entry.is_reaped = true;
  return entry.status;
}

void ForkedRanks::wait_until_stopped(int rank) {
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(pid(rank)), &info, WSTOPPED | WEXITED | WNOWAIT);
}

void ForkedRanks::wait_until_zombie(int rank) {
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(pid(rank)), &info, WEXITED | WNOWAIT);
}

std::string ForkedRanks::output(int rank) {
  auto& entry = ranks_[static_cast<size_t>(rank)];
  wait(rank);
  char buffer[4096];
  for (ssize_t got = 0; (got = read(entry.output, buffer, sizeof(buffer))) > 0;) {
    entry.text.append(buffer, static_cast<size_t>(got));
  }
  return entry.text;
}

void ForkedRanks::expect_success() {
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    EXPECT_EQ(wait(rank), 0) << "rank " << rank << ": " << output(rank);
  }
}

std::string text_of(const Outcome& outcome) {
  if (!outcome) return "success";
  std::string text;
  for (const auto& cause : outcome->causes) text += cause + "\n";
  return outcome->hint.empty() ? text : text + "hint: " + outcome->hint + "\n";
}

}  // namespace cohort::shm
