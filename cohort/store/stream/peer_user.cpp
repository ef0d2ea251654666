#include "cohort/store/stream/peer_user.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "cohort/base/file/file.h"
#include "cohort/base/log/log.h"
#include "cohort/base/net/address.h"
#include "cohort/base/system/env.h"

namespace cohort::store {
namespace {

/// The kernel's numbers for states of a socket (linux/tcp_states.h).
constexpr uint8_t kEstablished = 1;
constexpr uint8_t kListening = 10;
/// The inode of a socket that no process holds.
constexpr uint32_t kNoInode = 0;

struct Question {
  nlmsghdr header{};
  inet_diag_req_v2 request{};
};

struct Answer {
  nlmsghdr header{};
  inet_diag_msg socket{};
};

/// Copies address and port. Returns the family; 0 if it is not one of TCP's.
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

// The kernel looks up one socket by its two ends and answers before send() returns. Reading a list of all sockets, as in
// /proc/net/tcp, would take milliseconds for each client.
std::optional<inet_diag_msg> look_up(const base::Fd& query, Question question) {
  static std::atomic<uint32_t> last_number = 0;
  question.header.nlmsg_len = sizeof(question);
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.header.nlmsg_seq = ++last_number;
  question.request.sdiag_protocol = IPPROTO_TCP;
  std::memset(question.request.id.idiag_cookie, 0xff, sizeof(question.request.id.idiag_cookie));  // any
  if (::send(query.get(), &question, sizeof(question), 0) != sizeof(question)) return std::nullopt;
  Answer answer;
  do {  // only the first part of an answer is needed
    answer = {};
    if (::recv(query.get(), &answer, sizeof(answer), MSG_DONTWAIT) < static_cast<ssize_t>(sizeof(answer.header))) {
      return std::nullopt;
    }
  } while (answer.header.nlmsg_seq != question.header.nlmsg_seq);
  if (answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY) return std::nullopt;
  return answer.socket;
}

bool is_at_loopback(const Listener& listener) {
  sockaddr_storage end{};
  socklen_t size = sizeof(end);
  return ::getsockname(listener.socket.get(), reinterpret_cast<sockaddr*>(&end), &size) == 0 &&
         base::is_loopback(base::numeric_address(reinterpret_cast<sockaddr*>(&end)));
}

// Asks about a socket that exists and belongs to this process.
bool can_tell_users(const base::Fd& query, int listener) {
  Question question;
  auto& id = question.request.id;
  question.request.sdiag_family = take_end(listener, getsockname, id.idiag_src, &id.idiag_sport);
  question.request.idiag_states = 1u << kListening;
  const auto found = look_up(query, question);
  return found && found->idiag_state == kListening && is_own_user(found->idiag_uid);
}

}  // namespace

base::Result<base::Fd> open_user_query(const std::vector<Listener>& listeners) {
  const auto any_user = base::env_bool("COHORT_STORE_ANY_USER");
  if (!any_user) return any_user.error();
  if (any_user->value_or(false) || !std::all_of(listeners.begin(), listeners.end(), is_at_loopback)) return base::Fd();
  base::Fd query(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (query && can_tell_users(query, listeners.front().socket.get())) return query;
  base::warn_once(
      "this kernel does not tell who owns a socket (NETLINK_SOCK_DIAG), so every user of this host may change the keys "
      "of "
      "a store on a loopback address");
  return base::Fd();
}

std::optional<uid_t> user_of_peer(const base::Fd& query, int socket) {
  Question question;
  auto& id = question.request.id;
  question.request.sdiag_family = take_end(socket, getpeername, id.idiag_src, &id.idiag_sport);
  if (take_end(socket, getsockname, id.idiag_dst, &id.idiag_dport) != question.request.sdiag_family)
    return std::nullopt;
  question.request.idiag_states = 1u << kEstablished;
  // If there is no such connection, the kernel names a listener at that address.
  const auto found = look_up(query, question);
  if (!found || found->idiag_state != kEstablished || found->idiag_inode == kNoInode) return std::nullopt;
  return found->idiag_uid;
}

bool is_own_user(uid_t user) { return user == 0 || user == getuid() || user == geteuid(); }

}  // namespace cohort::store
