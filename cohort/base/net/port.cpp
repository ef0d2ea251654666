#include "cohort/base/net/port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <sstream>

#include "cohort/base/file/open_file.h"
#include "cohort/base/net/address.h"
#include "cohort/base/text/text.h"

namespace cohort::base {
namespace {

/// Binds to any free port on every address. If the host lacks the family, the socket is invalid.
PortReservation bind_any_port(int family) {
  PortReservation held{Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)), 0};
  if (!held.socket) return {};
  const int yes = 1;
  const int no = 0;
  (void)::setsockopt(held.socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_storage address{};
  address.ss_family = static_cast<sa_family_t>(family);
  const socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (family == AF_INET6) (void)::setsockopt(held.socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (::bind(held.socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return {};
  held.port = bound_port(held.socket.get());
  return held;
}

/// Returns the process that has the socket open, if this user may inspect it.
std::optional<PortHolder> find_holder(unsigned long inode) {
  const std::string wanted = fmt::format("socket:[{}]", inode);
  const auto in = [](const std::string& folder) {
    auto names = names_in_folder(folder);
    return names ? *std::move(names) : std::vector<std::string>();
  };
  for (const std::string& process : in("/proc")) {
    const std::optional<long long> pid = parse_int(process);
    if (!pid) continue;
    const std::string folder = "/proc/" + process;
    for (const std::string& fd : in(folder + "/fd")) {
      std::array<char, 64> link{};
      const std::string path = folder + "/fd/" + fd;
      if (::readlink(path.c_str(), link.data(), link.size() - 1) <= 0 || wanted != link.data()) continue;
      const Result<std::string> words = read_file(folder + "/cmdline");
      std::string command = words ? *words : "";
      for (char& letter : command) letter = letter == '\0' ? ' ' : letter;
      return PortHolder{static_cast<int>(*pid), trim(command).substr(0, 200)};
    }
  }
  return std::nullopt;
}

}  // namespace

int bound_port(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return port_of(reinterpret_cast<sockaddr*>(&address));
}

std::optional<unsigned long> listening_inode(const std::string& table, int port) {
  constexpr const char* kListening = "0A";
  std::istringstream lines(table);
  std::string line;
  std::getline(lines, line);  // the headings
  const std::string ending = fmt::format(":{:04X}", port);
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string index, local, remote, state, skipped;
    unsigned long inode = 0;
    fields >> index >> local >> remote >> state;
    for (int i = 0; i < 5; ++i) fields >> skipped;
    if (fields >> inode && state == kListening && local.ends_with(ending)) return inode;
  }
  return std::nullopt;
}

PortUse look_up_port(int port) {
  PortUse use;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    const Result<std::string> table = read_file(path);
    const auto inode = table ? listening_inode(*table, port) : std::nullopt;
    if (!inode) continue;
    use.is_listened_on = true;
    if (!use.holder) use.holder = find_holder(*inode);
  }
  return use;
}

Result<PortReservation> reserve_port() {
  for (const int family : {AF_INET6, AF_INET}) {
    PortReservation held = bind_any_port(family);
    if (held.socket) return held;
  }
  return Error(fmt::format("cannot find a free TCP port: {}", errno_text(errno)));
}

}  // namespace cohort::base
