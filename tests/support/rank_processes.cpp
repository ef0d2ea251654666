#include "tests/support/rank_processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <thread>

#include "cohort/base/net/port.h"
#include "cohort/base/system/env.h"
#include "tests/support/test_process.h"

namespace cohort::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kWorkerFlag = "--worker=";
/// This worker's place, a blank, and a file with a byte for each worker, 1 once it has ended. (Tests give RANK other values.)
constexpr const char* kDoneFile = "COHORT_TEST_DONE_FILE";
constexpr milliseconds kWaitForOthers{60'000};
/// Of a worker that has failed, whose end the others may wait for.
constexpr milliseconds kWaitAfterFailure{3000};

std::map<std::string, std::function<void()>>& registered_workers() {
  static std::map<std::string, std::function<void()>> workers;
  return workers;
}

std::vector<std::string>& stored_arguments() {
  static std::vector<std::string> arguments;
  return arguments;
}

/// Appends what can be read now. Returns false at the end of the stream.
bool read_available(int fd, std::string& text) {
  char buffer[65536];
  const ssize_t count = ::read(fd, buffer, sizeof buffer);
  if (count > 0) text.append(buffer, static_cast<size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

void note_done(const base::Fd& file, int rank) {
  const char done = 1;
  [[maybe_unused]] const ssize_t count = ::pwrite(file.get(), &done, 1, rank);
}

struct DoneFile {
  base::Fd file;
  int own_place = 0;
};

std::optional<DoneFile> open_done_file() {
  const auto value = base::get_env(kDoneFile);
  if (!value) return std::nullopt;
  const auto blank = value->find(' ');
  base::Fd file(::open(value->substr(blank + 1).c_str(), O_RDWR | O_CLOEXEC));
  if (!file) return std::nullopt;
  return DoneFile{std::move(file), std::stoi(*value)};
}

/// Rank 0 has the store, and each rank its ends of connections that others may just be making: nobody leaves before all have
/// done their work, or for some time.
void leave_with_the_others(milliseconds limit) {
  const auto opened = open_done_file();
  if (!opened) return;
  const base::Fd& file = opened->file;
  note_done(file, opened->own_place);
  const auto deadline = Clock::now() + limit;
  std::string done(static_cast<size_t>(std::max<off_t>(0, ::lseek(file.get(), 0, SEEK_END))), '\0');
  while (Clock::now() < deadline) {
    if (::pread(file.get(), done.data(), done.size(), 0) < 0 || done.find('\0') == std::string::npos) return;
    std::this_thread::sleep_for(milliseconds(2));
  }
}

struct Rank {
  TestProcess process;
  WorkerResult result;
  bool ended = false;
};

}  // namespace

struct Workers::State {
  std::string worker;
  WorkerOptions options;
  base::PortReservation port;
  base::Fd done;
  std::vector<Rank> ranks;
  Clock::time_point started = Clock::now();
  Clock::time_point deadline;

  TestProcess start(int rank) const {
    std::map<std::string, std::string> environment = base::environment();
    environment["RANK"] = environment["LOCAL_RANK"] = std::to_string(rank);
    environment["WORLD_SIZE"] = environment["LOCAL_WORLD_SIZE"] = std::to_string(options.world_size);
    environment["MASTER_ADDR"] = "127.0.0.1";
    environment["MASTER_PORT"] = std::to_string(port.port);
    if (!options.loads_anew) {
      environment[kDoneFile] =
          std::to_string(rank) + " /proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(done.get());
    }
    for (const auto& [name, value] : options.environment) environment[name] = value;
    std::vector<std::string> arguments = {"/proc/self/exe", kWorkerFlag + worker};
    arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
    return {arguments, environment, options.loads_anew};
  }

  void start() {
    base::Result<base::PortReservation> reserved = base::reserve_port();
    if (!reserved) throw std::runtime_error(reserved.error().describe());
    port = std::move(*reserved);
    done = base::Fd(::memfd_create("ranks that are done", MFD_CLOEXEC));
    if (!done || ::ftruncate(done.get(), options.world_size) != 0) throw std::runtime_error("memfd_create failed");
    for (int rank = 0; rank < options.world_size; ++rank) {
      ranks.push_back({start(rank), {}, false});
      ranks.back().result.rank = rank;
    }
    started = Clock::now();
    deadline = started + options.time_limit;
  }

  bool all_ended() const {
    return std::all_of(ranks.begin(), ranks.end(), [](const Rank& rank) { return rank.ended; });
  }

  /// What a rank's children hold open after its end must not keep us waiting: only what is there now is read.
  static void drain(base::Fd& fd, std::string& text) {
    for (pollfd entry{fd.get(), POLLIN, 0}; fd && ::poll(&entry, 1, 0) > 0;) {
      if (!read_available(fd.get(), text)) fd.reset();
    }
  }

  void finish(Rank& rank, const base::ExitStatus& status) {
    drain(rank.process.output, rank.result.output);
    drain(rank.process.errors, rank.result.errors);
    rank.process.bury();
    rank.ended = true;
    note_done(done, rank.result.rank);
    rank.result.exit_code = status.returncode();
    rank.result.elapsed = std::chrono::duration_cast<milliseconds>(Clock::now() - started);
  }

  void kill_late_ranks() {
    for (Rank& rank : ranks) {
      if (rank.ended) continue;
      rank.result.timed_out = true;
      rank.process.kill();
      finish(rank, rank.process.wait());
    }
  }

  /// Waits for the next output or exit and takes it in; kills everything at the time limit.
  void pump() {
    std::vector<pollfd> entries;
    for (Rank& rank : ranks) {
      if (rank.ended) continue;
      entries.push_back({rank.process.end_fd(), POLLIN, 0});
      entries.push_back({rank.process.output.get(), POLLIN, 0});
      entries.push_back({rank.process.errors.get(), POLLIN, 0});
    }
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return kill_late_ranks();
    if (::poll(entries.data(), entries.size(), static_cast<int>(left.count())) <= 0) return;
    size_t entry = 0;
    for (Rank& rank : ranks) {
      if (rank.ended) continue;
      const bool readable_output = entries[entry + 1].revents != 0;
      const bool readable_errors = entries[entry + 2].revents != 0;
      entry += 3;
      TestProcess& process = rank.process;
      if (readable_output && !read_available(process.output.get(), rank.result.output)) process.output.reset();
      if (readable_errors && !read_available(process.errors.get(), rank.result.errors)) process.errors.reset();
      if (const auto status = rank.process.poll()) finish(rank, *status);
    }
  }

  std::string describe() const {
    std::string text;
    for (const Rank& rank : ranks) {
      text += "rank " + std::to_string(rank.result.rank) + (rank.ended ? "" : " (still running)") + "\n--- stdout\n" +
              rank.result.output + "--- stderr\n" + rank.result.errors;
    }
    return text;
  }
};

Workers::Workers(const std::string& worker, const WorkerOptions& options) : state_(std::make_unique<State>()) {
  if (!registered_workers().contains(worker)) throw std::logic_error("no COHORT_WORKER(" + worker + ")");
  state_->worker = worker;
  state_->options = options;
  state_->start();
}

Workers::~Workers() = default;

int Workers::pid(int rank) const { return state_->ranks.at(rank).process.pid(); }

void Workers::signal(int rank, int signal_number) { state_->ranks.at(rank).process.signal(signal_number); }

void Workers::wait_for_output(int rank, const std::string& text) {
  const Rank& waited = state_->ranks.at(rank);
  while (waited.result.output.find(text) == std::string::npos) {
    if (waited.ended) {
      ADD_FAILURE() << "rank " << rank << " of worker '" << state_->worker << "' ended without printing \"" << text
                    << "\"\n"
                    << state_->describe();
      return;
    }
    state_->pump();
  }
}

WorkerResults Workers::wait() {
  while (!state_->all_ended()) state_->pump();
  WorkerResults results;
  for (const Rank& rank : state_->ranks) results.ranks.push_back(rank.result);
  return results;
}

void WorkerResults::expect_success() const {
  for (const WorkerResult& rank : ranks) {
    EXPECT_EQ(rank.exit_code, 0) << "rank " << rank.rank << (rank.timed_out ? " was killed at the time limit" : "")
                                 << " after " << rank.elapsed.count() << " ms\n--- stdout\n"
                                 << rank.output << "--- stderr\n"
                                 << rank.errors;
  }
}

WorkerResults run_workers(const std::string& worker, const WorkerOptions& options) {
  return Workers(worker, options).wait();
}

const std::vector<std::string>& worker_arguments() { return stored_arguments(); }

bool is_done(int rank) {
  const auto opened = open_done_file();
  if (!opened) throw std::logic_error("only workers that do not load anew can ask who is done");
  char done = 0;
  return ::pread(opened->file.get(), &done, 1, rank) == 1 && done == 1;
}

bool register_worker(const std::string& name, std::function<void()> body) {
  return registered_workers().emplace(name, std::move(body)).second;
}

int run_named_worker(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (!first.starts_with(kWorkerFlag)) return -1;
  const auto worker = registered_workers().find(first.substr(std::string(kWorkerFlag).size()));
  if (worker == registered_workers().end()) {
    std::cerr << "no worker for " << first << "\n" << std::flush;
    return 2;
  }
  stored_arguments().assign(argv + 2, argv + argc);
  // Tests wait for single lines of output through a pipe, where stdout would be buffered in blocks.
  std::cout << std::unitbuf;
  ::setvbuf(stdout, nullptr, _IOLBF, 0);
  int code = 0;
  try {
    worker->second();
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n" << std::flush;
    code = 1;
  }
  leave_with_the_others(code == 0 ? kWaitForOthers : kWaitAfterFailure);
  return code;
}

}  // namespace cohort::test
