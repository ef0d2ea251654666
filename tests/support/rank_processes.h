/// Runs a test's ranks as real processes: the test program once more, with `--worker=<name>`.
///
///     COHORT_WORKER(sums_ranks) {            // runs in every rank; a throw is printed to stderr and exits with 1
///       cohort::init_process_group("gloo");
///       ...
///     }
///     TEST(AllReduce, SumsRanks) { run_workers("sums_ranks", {.world_size = 3}).expect_success(); }
///
/// Ranks get RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR=127.0.0.1 and a free MASTER_PORT, whose
/// store rank 0 hosts. Every rank is killed when the time limit passes or the test ends.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace cohort::test {

struct WorkerOptions {
  int world_size = 2;
  std::map<std::string, std::string> environment;
  std::vector<std::string> arguments;
  std::chrono::seconds time_limit{200};
  /// The program is loaded anew and left through all destructors, as users' programs are, where others are forked
  /// (fork_server/fork_server.h).
  bool loads_anew = false;
};

struct WorkerResult {
  int rank = 0;
  /// Exit code, or minus the number of the signal that ended it.
  int exit_code = 0;
  bool timed_out = false;
  std::string output;
  std::string errors;
  std::chrono::milliseconds elapsed{0};
};

/// The ranks of one run.
struct WorkerResults {
  std::vector<WorkerResult> ranks;
  /// Fails the test, showing each rank's output, unless every rank ended with 0.
  void expect_success() const;
  const WorkerResult& operator[](int rank) const { return ranks.at(rank); }
};

/// Running ranks, for tests that kill or stop some of them. The destructor kills what still runs.
class Workers {
 public:
  Workers(const std::string& worker, const WorkerOptions& options);
  ~Workers();
  int pid(int rank) const;
  void signal(int rank, int signal_number);
  /// Blocks until rank's standard output has had `text`; fails the test after the time limit.
  void wait_for_output(int rank, const std::string& text);
  WorkerResults wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

WorkerResults run_workers(const std::string& worker, const WorkerOptions& options = {});

/// In a worker: the arguments given by WorkerOptions::arguments.
const std::vector<std::string>& worker_arguments();

/// In a worker: whether another one's body is over, or its process. A worker that has come to its end stays until all have, so
/// that the others still reach its store. Not for workers that load anew.
bool is_done(int rank);

bool register_worker(const std::string& name, std::function<void()> body);
/// Runs the worker named on the command line and returns its exit code; -1 if none is named.
int run_named_worker(int argc, char** argv);

}  // namespace cohort::test

#define COHORT_WORKER(name)                                       \
  static void worker_##name();                                    \
  [[maybe_unused]] static const bool worker_##name##_registered = \
      ::cohort::test::register_worker(#name, worker_##name);      \
  static void worker_##name()
