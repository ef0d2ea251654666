#include "cohort/base/port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "cohort/base/text.h"

namespace cohort::base {
namespace {

/// Binds to any free port of every address; a socket of no family means that the host lacks it.
PortReservation bind_any_port(int family) {
  PortReservation held{Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)), 0};
  if (!held.socket) return {};
  const int yes = 1;
  const int no = 0;
  (void)::setsockopt(held.socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_storage address{};
  address.ss_family = static_cast<sa_family_t>(family);
  socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (family == AF_INET6) (void)::setsockopt(held.socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (::bind(held.socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return {};
  if (::getsockname(held.socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  held.port = ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(address).sin_port);
  return held;
}

}  // namespace

Result<PortReservation> reserve_port() {
  for (const int family : {AF_INET6, AF_INET}) {
    PortReservation held = bind_any_port(family);
    if (held.socket) return held;
  }
  return Error(fmt::format("cannot find a free TCP port: {}", errno_text(errno)));
}

}  // namespace cohort::base
