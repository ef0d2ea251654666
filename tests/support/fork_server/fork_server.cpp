// The serving side.
#include "tests/support/fork_server/fork_server.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "tests/support/fork_server/wire.h"

namespace cohort::test {
namespace {

constexpr int kIdleMilliseconds = 5000;

/// Ends the process before the destructors of what was made when libraries were loaded: LibTorch's need as long as loading
/// it. What has come since has ended by then.
void leave(int status, void* /*unused*/) {
  std::fflush(nullptr);
  ::_exit(status);
}

/// Who has asked for a process; until then its pid is 0.
struct Client {
  base::Fd connection;
  base::Fd pidfd;
  pid_t pid = 0;
  bool is_done = false;
};

class ForkServer {
 public:
  ForkServer(int listener, const std::function<int(int, char**)>& run) : listener_(listener), run_(run) {}

  int serve() {
    for (;;) {
      std::vector<pollfd> entries = {{listener_.get(), POLLIN, 0}};
      for (const Client& client : clients_) {
        entries.push_back({client.connection.get(), POLLIN, 0});
        entries.push_back({client.pidfd.get(), POLLIN, 0});
      }
      const int count = ::poll(entries.data(), entries.size(), clients_.empty() ? kIdleMilliseconds : -1);
      if (count == 0) return 0;
      if (count < 0) continue;
      for (size_t i = 0; i < clients_.size(); ++i) {
        // An end first: whoever waits for it does not go before.
        if (entries[2 + 2 * i].revents) end(clients_[i]);
        if (!clients_[i].is_done && entries[1 + 2 * i].revents) hear(clients_[i]);
      }
      std::erase_if(clients_, [](const Client& client) { return client.is_done; });
      if (entries[0].revents) accept();
    }
  }

 private:
  void accept() {
    base::Fd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection) return;
    clients_.emplace_back();
    clients_.back().connection = std::move(connection);
  }

  /// A request, or the end of whoever has sent it.
  void hear(Client& client) {
    if (client.pid) {
      ::kill(client.pid, SIGKILL);
      return end(client);
    }
    auto request =
        wire::is_ours(client.connection.get()) ? wire::receive_request(client.connection.get()) : std::nullopt;
    const pid_t pid = request ? ::fork() : -1;
    if (pid == 0) become(*request);
    if (pid < 0) {
      client.is_done = true;
      return;
    }
    client.pid = pid;
    client.pidfd = base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, client.pid, 0)));
    ::send(client.connection.get(), &client.pid, sizeof client.pid, MSG_NOSIGNAL);
  }

  /// Of a process that has ended, or is about to. What is left of its group goes while its pid is still its own.
  void end(Client& client) {
    siginfo_t info = {};
    ::waitid(P_PID, static_cast<id_t>(client.pid), &info, WEXITED | WNOWAIT);
    ::kill(-client.pid, SIGKILL);
    int status = 0;
    ::waitpid(client.pid, &status, 0);
    const wire::Ending ending{.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                              .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
    ::send(client.connection.get(), &ending, sizeof ending, MSG_NOSIGNAL);
    client.is_done = true;
  }

  [[noreturn]] void become(wire::Request& request) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setsid();
    ::signal(SIGPIPE, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    listener_.reset();
    clients_.clear();
    ::dup2(request.input.get(), 0);
    ::dup2(request.output.get(), 1);
    ::dup2(request.error.get(), 2);
    if (::fchdir(request.folder.get()) != 0) ::_exit(127);
    for (base::Fd* const fd : {&request.input, &request.output, &request.error, &request.folder}) fd->reset();
    const auto name = base::get_env(wire::kNameVariable).value_or("");
    ::clearenv();
    for (std::string& variable : request.variables) ::putenv(variable.data());
    base::set_env(wire::kNameVariable, name);
    std::vector<char*> arguments;
    for (std::string& argument : request.arguments) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    ::on_exit(leave, nullptr);
    std::exit(run_(static_cast<int>(request.arguments.size()), arguments.data()));
  }

  base::Fd listener_;
  const std::function<int(int, char**)>& run_;
  std::vector<Client> clients_;
};

}  // namespace

int main_of_test_program(int argc, char** argv, const std::function<int(int, char**)>& run) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (!first.starts_with(wire::kServerFlag)) return run(argc, argv);
  const auto listener = base::parse_int(first.substr(std::string(wire::kServerFlag).size()));
  return listener ? ForkServer(static_cast<int>(*listener), run).serve() : 2;
}

}  // namespace cohort::test
