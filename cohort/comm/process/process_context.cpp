#include "cohort/comm/process/process_context.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "cohort/base/log/log.h"
#include "cohort/base/system/deadline.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/process/spawned_rank.h"

namespace cohort {
namespace {

using comm::SpawnedRank;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
constexpr auto kGracePeriod = std::chrono::seconds(30);

// If absent, a wait has no limit.
using Deadline = std::optional<Clock::time_point>;

Deadline after(std::optional<milliseconds> timeout) {
  return timeout ? Deadline(base::deadline_after(*timeout)) : std::nullopt;
}

void reap(std::vector<SpawnedRank>& ranks) {
  for (auto& rank : ranks) {
    if (rank.running && waitpid(rank.pid, &rank.status, WNOHANG) == rank.pid) rank.running = false;
  }
}

bool any_running(const std::vector<SpawnedRank>& ranks) {
  return std::any_of(ranks.begin(), ranks.end(), [](const auto& rank) { return rank.running; });
}

bool all_joined(const std::vector<SpawnedRank>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [](const auto& rank) { return rank.joined; });
}

bool is_ready(const SpawnedRank& rank) { return !rank.running && !rank.joined; }

// Waits until a running rank has ended. Returns false at the deadline.
bool wait_for_an_end(std::vector<SpawnedRank>& ranks, const Deadline& deadline) {
  std::vector<pollfd> fds;
  for (const auto& rank : ranks) {
    if (rank.running) fds.push_back({rank.pidfd.get(), POLLIN, 0});
  }
  const auto num_running = [&] {
    return std::count_if(ranks.begin(), ranks.end(), [](const auto& rank) { return rank.running; });
  };
  while (true) {
    poll(fds.data(), fds.size(), deadline ? base::milliseconds_until(*deadline) : -1);
    reap(ranks);
    if (num_running() < static_cast<ptrdiff_t>(fds.size())) return true;
    if (deadline && Clock::now() >= *deadline) return false;
  }
}

void wait_for_all(std::vector<SpawnedRank>& ranks, const Deadline& deadline) {
  while (any_running(ranks) && wait_for_an_end(ranks, deadline)) {
  }
}

void signal_running(const std::vector<SpawnedRank>& ranks, int signal_number, const char* warning) {
  for (const auto& rank : ranks) {
    if (!rank.running) continue;
    base::log_warning(fmt::format(fmt::runtime(warning), static_cast<int>(rank.pid)));
    kill(rank.pid, signal_number);
  }
}

void end_all(std::vector<SpawnedRank>& ranks, std::optional<milliseconds> grace_period) {
  if (grace_period) wait_for_all(ranks, after(grace_period));
  reap(ranks);
  signal_running(ranks, SIGTERM, "Terminating process {} via signal SIGTERM");
  wait_for_all(ranks, after(grace_period.value_or(kGracePeriod)));
  signal_running(ranks, SIGKILL, "Unable to shutdown process {} via SIGTERM , forcefully exiting via SIGKILL");
  wait_for_all(ranks, std::nullopt);
}

std::string read_error_text(const SpawnedRank& rank) {
  std::string text(comm::kMaxErrorBytes, '\0');
  const auto length = read(rank.error_pipe.get(), text.data(), text.size());
  text.resize(length > 0 ? static_cast<size_t>(length) : 0);
  return text;
}

// Returns the name that Python's signal.Signals has.
std::string python_signal_name(int number) {
  if (number == SIGRTMIN) return "SIGRTMIN";
  if (number == SIGRTMAX) return "SIGRTMAX";
  const auto name = base::signal_name(number);
  return name.starts_with("SIG") ? name : fmt::format("<Unknown signal {}>", number);
}

[[noreturn]] void throw_failure(const SpawnedRank& rank, int index) {
  // As in PyTorch, a text that the rank has written counts, however the process then ended.
  if (const auto text = read_error_text(rank); !text.empty()) {
    throw ProcessRaisedError(fmt::format("\n\n-- Process {} terminated with the following error:\n{}", index, text),
                             index, rank.pid);
  }
  if (WIFSIGNALED(rank.status)) {
    const int number = WTERMSIG(rank.status);
    const auto name = python_signal_name(number);
    throw ProcessExitedError(fmt::format("process {} terminated with signal {}", index, name), index, rank.pid, -number,
                             name);
  }
  const int code = WEXITSTATUS(rank.status);
  throw ProcessExitedError(fmt::format("process {} terminated with exit code {}", index, code), index, rank.pid, code);
}

}  // namespace

ProcessContext::ProcessContext() : ranks_(new Ranks{.owner = getpid(), .list = {}}) {}

ProcessContext::ProcessContext(ProcessContext&& other) noexcept : ranks_(std::move(other.ranks_)) {}

ProcessContext& ProcessContext::operator=(ProcessContext&& other) noexcept {
  ProcessContext taken(std::move(other));
  std::swap(ranks_, taken.ranks_);
  return *this;
}

ProcessContext::~ProcessContext() {
  if (!ranks_ || ranks_->owner != getpid()) return;
  reap(ranks_->list);
  if (any_running(ranks_->list)) end_all(ranks_->list, std::nullopt);
}

std::vector<int> ProcessContext::pids() const {
  std::vector<int> pids;
  if (!ranks_) return pids;
  for (const auto& rank : ranks_->list) pids.push_back(static_cast<int>(rank.pid));
  return pids;
}

bool ProcessContext::join(std::optional<milliseconds> timeout, std::optional<milliseconds> grace_period) {
  if (!ranks_ || all_joined(ranks_->list)) return true;
  if (ranks_->owner != getpid()) {
    throw std::logic_error(fmt::format(
        "[cohort] join() of a ProcessContext in process {}: its ranks belong to process {}, which called spawn",
        static_cast<int>(getpid()), static_cast<int>(ranks_->owner)));
  }
  auto& ranks = ranks_->list;
  reap(ranks);
  if (std::none_of(ranks.begin(), ranks.end(), is_ready)) wait_for_an_end(ranks, after(timeout));
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!is_ready(ranks[i])) continue;
    ranks[i].joined = true;
    if (ranks[i].status == 0) continue;
    end_all(ranks, grace_period);
    throw_failure(ranks[i], static_cast<int>(i));
  }
  return all_joined(ranks);
}

}  // namespace cohort
