/// What the fork server and those who ask it say to each other: a request is one packet, answered by the pid of the new process
/// and, at its end, by how it ended.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <optional>
#include <string>
#include <vector>

#include "cohort/base/file/file.h"
#include "tests/support/fork_server/fork_server.h"

namespace cohort::test::wire {

/// `--fork-server=FD`: the program is a server, which listens at the descriptor.
inline constexpr const char* kServerFlag = "--fork-server=";
/// The server's name, for those that it has forked.
inline constexpr const char* kNameVariable = "COHORT_TEST_SERVER";

struct Address {
  sockaddr_un data = {};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&data); }
};
/// In the abstract namespace: there is no file, and one at a time can bind it.
Address address_of(const std::string& name);
/// Whether our own user is at the other end.
bool is_ours(int connection);

struct Ending {
  int code = 0;
  int signal = 0;
};

/// False, with errno: it was not sent.
bool send_request(int connection, const ServedOptions& options);

struct Request {
  std::vector<std::string> arguments;
  std::vector<std::string> variables;  ///< NAME=value
  base::Fd input, output, error, folder;
};
/// Nothing: it was no request, or nobody is there any more.
std::optional<Request> receive_request(int connection);

}  // namespace cohort::test::wire
