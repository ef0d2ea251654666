/// This test program once more, as a process of its own: forked by the fork server where there is one, else started anew.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cohort/base/file/file.h"
#include "cohort/base/process/process.h"
#include "tests/support/fork_server/fork_server.h"

namespace cohort::test {

/// It leads a session. The destructor kills it and what it has started.
class TestProcess {
 public:
  /// With pipes for what it prints. Throws std::runtime_error.
  TestProcess(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment,
              bool loads_anew);

  pid_t pid() const;
  /// Readable once it has ended, for poll.
  int end_fd() const;
  /// How it ended, without blocking; nothing while it runs.
  std::optional<base::ExitStatus> poll();
  base::ExitStatus wait();
  void signal(int signal_number);
  /// It and its process group, with SIGKILL.
  void kill();
  /// After its end: nobody is left in its process group, and its pid may become somebody else's.
  void bury();

  base::Fd output;
  base::Fd errors;

 private:
  std::variant<std::monostate, base::Process, ServedProcess> process_;
};

}  // namespace cohort::test
