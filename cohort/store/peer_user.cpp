#include "cohort/store/peer_user.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "cohort/base/address.h"
#include "cohort/base/env.h"
#include "cohort/base/file.h"
#include "cohort/base/log.h"

namespace cohort::store {
namespace {

/// States of a socket in the kernel's numbers (linux/tcp_states.h).
constexpr uint8_t kEstablished = 1;
constexpr uint8_t kListening = 10;
/// A socket that no process holds has no inode.
constexpr uint32_t kNoInode = 0;

struct Question {
  nlmsghdr header{};
  inet_diag_req_v2 request{};
};

struct Answer {
  nlmsghdr header{};
  inet_diag_msg socket{};
};

/// Copies address and port; 0 of a family that is not TCP's.
uint8_t take_end(int socket, int (*ask)(int, sockaddr*, socklen_t*), __be32* address, __be16* port) {
  sockaddr_storage end{};
  socklen_t size = sizeof(end);
  if (ask(socket, reinterpret_cast<sockaddr*>(&end), &size) != 0) return 0;
  if (end.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(end);
    std::memcpy(address, &v4.sin_addr, sizeof(v4.sin_addr));
    *port = v4.sin_port;
  } else if (end.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(end);
    std::memcpy(address, &v6.sin6_addr, sizeof(v6.sin6_addr));
    *port = v6.sin6_port;
  } else {
    return 0;
  }
  return static_cast<uint8_t>(end.ss_family);
}

// The kernel looks up one socket by its two ends and answers before send() returns. A list of all sockets, as in /proc/net/tcp,
// would take milliseconds for each client.
std::optional<inet_diag_msg> look_up(Question question) {
  const base::Fd kernel(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!kernel) return std::nullopt;
  question.header.nlmsg_len = sizeof(question);
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.request.sdiag_protocol = IPPROTO_TCP;
  std::memset(question.request.id.idiag_cookie, 0xff, sizeof(question.request.id.idiag_cookie));  // any
  if (::send(kernel.get(), &question, sizeof(question), 0) != sizeof(question)) return std::nullopt;
  Answer answer;
  sockaddr_nl sender{};
  iovec room{&answer, sizeof(answer)};  // what follows is not asked for
  msghdr message{};
  message.msg_name = &sender;
  message.msg_namelen = sizeof(sender);
  message.msg_iov = &room;
  message.msg_iovlen = 1;
  if (::recvmsg(kernel.get(), &message, MSG_DONTWAIT) != sizeof(answer) || sender.nl_pid != 0) return std::nullopt;
  if (answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY) return std::nullopt;
  return answer.socket;
}

bool is_at_loopback(const Listener& listener) {
  sockaddr_storage end{};
  socklen_t size = sizeof(end);
  return ::getsockname(listener.socket.get(), reinterpret_cast<sockaddr*>(&end), &size) == 0 &&
         base::is_loopback(base::numeric_address(reinterpret_cast<sockaddr*>(&end)));
}

// Of a socket that is surely there and ours.
bool can_tell_users(int listener) {
  Question question;
  auto& id = question.request.id;
  question.request.sdiag_family = take_end(listener, getsockname, id.idiag_src, &id.idiag_sport);
  question.request.idiag_states = 1u << kListening;
  const auto found = look_up(question);
  return found && found->idiag_state == kListening && is_own_user(found->idiag_uid);
}

}  // namespace

base::Result<bool> is_for_own_user(const std::vector<Listener>& listeners) {
  const auto any_user = base::env_bool("COHORT_STORE_ANY_USER");
  if (!any_user) return any_user.error();
  if (any_user->value_or(false) || !std::all_of(listeners.begin(), listeners.end(), is_at_loopback)) return false;
  if (can_tell_users(listeners.front().socket.get())) return true;
  base::warn_once(
      "this kernel does not tell who owns a socket (NETLINK_SOCK_DIAG), so every user of this host may change the keys "
      "of "
      "a store on a loopback address");
  return false;
}

std::optional<uid_t> user_of_peer(int socket) {
  Question question;
  auto& id = question.request.id;
  question.request.sdiag_family = take_end(socket, getpeername, id.idiag_src, &id.idiag_sport);
  if (take_end(socket, getsockname, id.idiag_dst, &id.idiag_dport) != question.request.sdiag_family)
    return std::nullopt;
  question.request.idiag_states = 1u << kEstablished;
  // Without such a connection the kernel names a listener at that address.
  const auto found = look_up(question);
  if (!found || found->idiag_state != kEstablished || found->idiag_inode == kNoInode) return std::nullopt;
  return found->idiag_uid;
}

bool is_own_user(uid_t user) { return user == 0 || user == getuid() || user == geteuid(); }

}  // namespace cohort::store
