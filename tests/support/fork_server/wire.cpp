#include "tests/support/fork_server/wire.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "cohort/base/text/text.h"

namespace cohort::test::wire {
namespace {

constexpr size_t kMaxRequest = size_t{1} << 17;
using Descriptors = std::array<int, 4>;  // input, output, error, folder

/// Words that end with a zero byte: the number of arguments, the arguments, the variables.
std::string text_of(const ServedOptions& options) {
  std::string text = std::to_string(options.arguments.size()) + '\0';
  for (const auto& argument : options.arguments) text += argument + '\0';
  for (const auto& [name, value] : options.environment) text += name + "=" + value + '\0';
  return text;
}

}  // namespace

Address address_of(const std::string& name) {
  Address address;
  address.data.sun_family = AF_UNIX;
  name.copy(address.data.sun_path + 1, sizeof address.data.sun_path - 1);
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

bool is_ours(int connection) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

bool send_request(int connection, const ServedOptions& options) {
  std::string text = text_of(options);
  if (text.size() > kMaxRequest) {
    errno = E2BIG;
    return false;
  }
  const base::Fd folder(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  const Descriptors descriptors = {0, options.output_fd, options.error_fd, folder.get()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptors)] = {};
  iovec part = {text.data(), text.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptors);
  std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof descriptors);
  return ::sendmsg(connection, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

std::optional<Request> receive_request(int connection) {
  std::string text(kMaxRequest, '\0');
  Descriptors descriptors = {-1, -1, -1, -1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptors)] = {};
  iovec part = {text.data(), text.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t count = ::recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (count <= 0 || !header || header->cmsg_len != CMSG_LEN(sizeof descriptors)) return std::nullopt;
  std::memcpy(descriptors.data(), CMSG_DATA(header), sizeof descriptors);
  Request request{.arguments = {},
                  .variables = {},
                  .input = base::Fd(descriptors[0]),
                  .output = base::Fd(descriptors[1]),
                  .error = base::Fd(descriptors[2]),
                  .folder = base::Fd(descriptors[3])};
  auto words = base::split(text.substr(0, static_cast<size_t>(count)), '\0');
  if (!words.empty()) words.pop_back();  // behind the last zero
  const auto num_arguments = words.empty() ? size_t{0} : static_cast<size_t>(base::parse_int(words[0]).value_or(0));
  if (num_arguments < 1 || num_arguments >= words.size()) return std::nullopt;
  const auto first_variable = words.begin() + 1 + static_cast<ptrdiff_t>(num_arguments);
  request.arguments.assign(words.begin() + 1, first_variable);
  request.variables.assign(first_variable, words.end());
  return request;
}

}  // namespace cohort::test::wire
