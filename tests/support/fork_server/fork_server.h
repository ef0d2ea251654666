/// Starts a test program without loading its libraries again: LibTorch alone needs half a second of a core for that, and there
/// are thousands of tests. A server is the program itself, loaded, waiting before its main(); it forks for each process
/// asked for.
///
///     cohort_run_test build/bin/tests/cohort_comm_test --gtest_filter=Work.Waits     what ctest runs (run_test.cpp)
///
/// The first one to ask starts the server of a program, by an abstract socket whose name stands for the program, its libraries
/// and the whole environment; with nothing left to do it ends by itself after some seconds. Only processes of the same user
/// may ask. COHORT_TEST_FORK_SERVER=0: programs start as ever.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"
#include "cohort/base/process/process.h"

namespace cohort::test {

struct ServedOptions {
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;
  int output_fd = 1;
  int error_fd = 2;
};

/// A process that a server has forked, in our working directory and with our standard input. It leads a session, and is
/// killed with its process group when this object goes.
class ServedProcess {
 public:
  /// Asks the server that listens at `name`.
  static base::Result<ServedProcess> start(const std::string& name, const ServedOptions& options);

  pid_t pid() const { return pid_; }
  /// Readable once the process has ended, for poll.
  int end_fd() const { return connection_.get(); }
  /// How it ended, without blocking; nothing while it runs. Nobody is left in its process group then. The server's end is
  /// SIGKILL.
  std::optional<base::ExitStatus> poll();
  base::ExitStatus wait();
  void signal(int signal_number) const;

 private:
  ServedProcess() = default;
  std::optional<base::ExitStatus> receive(int flags);

  base::Fd connection_;
  pid_t pid_ = -1;
  std::optional<base::ExitStatus> status_;
};

/// The name at which a server of `program` listens whose environment is ours.
std::string server_name(const std::string& program);
/// Starts it, unless somebody else is doing so.
base::Result<void> start_server(const std::string& name, const std::string& program);

/// In a process that a server has forked: the server's name, if a process with that environment can be forked, too. What
/// libraries read when they are loaded must be as it was then.
std::optional<std::string> own_server(const std::map<std::string, std::string>& environment);

/// The main() of a test program: `run`, or, where it has been started as a server, `run` in each process asked for.
int main_of_test_program(int argc, char** argv, const std::function<int(int, char**)>& run);

}  // namespace cohort::test
