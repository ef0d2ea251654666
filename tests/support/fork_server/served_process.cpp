// The asking side of the fork server.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "tests/support/fork_server/fork_server.h"
#include "tests/support/fork_server/wire.h"

namespace cohort::test {
namespace {

base::Error no_server(const std::string& what) {
  return base::Error(fmt::format("the fork server: {}: {}", what, base::errno_text(errno)));
}

/// FNV-1a.
void mix(uint64_t& hash, std::string_view text) {
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211u;
  hash = (hash ^ 0xff) * 1099511628211u;
}

void mix_file(uint64_t& hash, const std::string& path) {
  struct stat entry = {};
  if (::stat(path.c_str(), &entry) != 0) return;
  mix(hash,
      fmt::format("{} {} {} {}.{}", path, entry.st_ino, entry.st_size, entry.st_mtim.tv_sec, entry.st_mtim.tv_nsec));
}

/// Of variables that nothing reads before main().
bool is_read_late(const std::string& name) {
  for (const char* const known :
       {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    if (name == known) return true;
  }
  return name.starts_with("COHORT_");
}

}  // namespace

base::Result<ServedProcess> ServedProcess::start(const std::string& name, const ServedOptions& options) {
  ServedProcess process;
  process.connection_ = base::Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto address = wire::address_of(name);
  if (::connect(process.connection_.get(), address.get(), address.size) != 0) return no_server("connect");
  if (!wire::is_ours(process.connection_.get())) return base::Error("the fork server: it is another user's");
  if (!wire::send_request(process.connection_.get(), options)) return no_server("cannot be asked");
  if (::recv(process.connection_.get(), &process.pid_, sizeof process.pid_, 0) != sizeof process.pid_) {
    return no_server("has not answered");
  }
  return process;
}

std::optional<base::ExitStatus> ServedProcess::receive(int flags) {
  if (status_) return status_;
  wire::Ending ending;
  ssize_t count;
  do {
    count = ::recv(connection_.get(), &ending, sizeof ending, flags);
  } while (count < 0 && errno == EINTR);
  if (count < 0 && errno == EAGAIN) return std::nullopt;
  if (count != sizeof ending) ending = {.code = 0, .signal = SIGKILL};
  status_ = base::ExitStatus{.code = ending.code, .signal = ending.signal};
  return status_;
}

std::optional<base::ExitStatus> ServedProcess::poll() { return receive(MSG_DONTWAIT); }
base::ExitStatus ServedProcess::wait() { return *receive(0); }

void ServedProcess::signal(int signal_number) const {
  if (!status_) ::kill(pid_, signal_number);
}

std::string server_name(const std::string& program) {
  uint64_t hash = 14695981039346656037u;
  mix_file(hash, std::filesystem::absolute(program));
  std::error_code error;
  const auto libraries = std::filesystem::path(base::get_env("COHORT_BINARY_DIR").value_or(".")) / "lib";
  for (const auto& entry : std::filesystem::directory_iterator(libraries, error)) mix_file(hash, entry.path());
  for (const auto& [variable, value] : base::environment()) mix(hash, variable + "=" + value);
  return fmt::format("cohort-test-{}-{:016x}", ::geteuid(), hash);
}

base::Result<void> start_server(const std::string& name, const std::string& program) {
  base::Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
  const auto address = wire::address_of(name);
  if (::bind(listener.get(), address.get(), address.size) != 0) {
    if (errno == EADDRINUSE) return {};
    return no_server("bind");
  }
  if (::listen(listener.get(), 64) != 0) return no_server("listen");
  const auto flag = wire::kServerFlag + std::to_string(listener.get());
  const pid_t pid = ::fork();
  if (pid < 0) return no_server("fork");
  if (pid > 0) return {};
  // Whoever waits for the end of our output does not wait for the server's.
  ::setsid();
  const base::Fd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {0, 1, 2}) ::dup2(nothing.get(), fd);
  base::set_env(wire::kNameVariable, name);
  ::execl(program.c_str(), program.c_str(), flag.c_str(), nullptr);
  ::_exit(127);
}

std::optional<std::string> own_server(const std::map<std::string, std::string>& environment) {
  auto name = base::get_env(wire::kNameVariable);
  if (!name) return std::nullopt;
  // The kernel's copy has what was there when the program was loaded.
  const auto loaded_with = base::read_file("/proc/self/environ");
  if (!loaded_with) return std::nullopt;
  std::map<std::string, std::string> other = environment;
  for (const std::string& variable : base::split(*loaded_with, '\0')) {
    const auto equals = variable.find('=');
    if (equals == std::string::npos) continue;
    const std::string key = variable.substr(0, equals), value = variable.substr(equals + 1);
    const auto here = other.find(key);
    if (here != other.end() && here->second == value) {
      other.erase(here);
    } else if (!is_read_late(key)) {
      return std::nullopt;
    }
  }
  for (const auto& [variable, value] : other) {
    if (!is_read_late(variable)) return std::nullopt;
  }
  return name;
}

}  // namespace cohort::test
