// Strangers on this host: processes of another user that connect to a store on a loopback address.
#include "cohort/store/stream/peer_user.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "cohort/base/system/env.h"
#include "cohort/store/tcp/tcp_client.h"
#include "cohort/store/tcp/tcp_server.h"
#include "tests/store/times.h"

namespace cohort::store {
namespace {

constexpr uid_t kStranger = 65534;

/// In a process of that user; its exit code.
int exit_code_of_stranger(const std::function<int()>& run) {
  const pid_t child = fork();
  if (child == 0) _exit(setuid(kStranger) != 0 ? 99 : run());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// 0: the key was deleted; 1: the store has ended the connection before.
int delete_key(int port, const std::string& host) {
  const auto client = TcpClient::connect({.host = host, .port = port, .timeout = kHangLimit});
  if (!client) return 1;
  const auto deleted = (*client)->delete_key("key");
  return deleted && *deleted ? 0 : 1;
}

class StrangerTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  }
};

TEST_P(StrangerTest, ChangesNoKeysOfAStoreAtALoopbackAddress) {
  const auto server = TcpServer::start({.host = GetParam()}).value();
  const auto own = TcpClient::connect({.host = GetParam(), .port = server->port(), .timeout = kHangLimit}).value();
  ASSERT_TRUE(own->set("key", "value"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(exit_code_of_stranger([&] { return delete_key(server->port(), GetParam()); }), 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::ContainsRegex("the store refuses its client [^ ]*: user 65534 owns it; COHORT_STORE_ANY_USER=1 "
                                     "admits every user\n"));
  EXPECT_EQ(own->check({"key"}).value(), true);
}

TEST_P(StrangerTest, IsAdmittedWhereTheVariableSaysSo) {
  base::set_env("COHORT_STORE_ANY_USER", "1");
  const auto server = TcpServer::start({.host = GetParam()}).value();
  base::unset_env("COHORT_STORE_ANY_USER");
  const auto own = TcpClient::connect({.host = GetParam(), .port = server->port(), .timeout = kHangLimit}).value();
  ASSERT_TRUE(own->set("key", "value"));
  EXPECT_EQ(exit_code_of_stranger([&] { return delete_key(server->port(), GetParam()); }), 0);
}

// A connection that its process has closed is nobody's. The kernel calls it root's, whom stores admit.
TEST_P(StrangerTest, IsNotTakenForRootOnceItHasClosedItsEnd) {
  const auto listeners = listen_on(GetParam(), 0).value();
  const base::Fd query = open_user_query(listeners).value();
  const auto user_of = [&](bool closes) {
    int pipe_fds[2];
    EXPECT_EQ(pipe(pipe_fds), 0);
    const pid_t child = fork();
    if (child == 0) {
      if (setuid(kStranger) != 0) _exit(99);
      const auto socket = connect_to(GetParam(), listeners[0].port, kHangLimit);
      if (!socket) _exit(1);
      (void)!send(socket->get(), "request", 7, MSG_NOSIGNAL);
      char byte;
      close(pipe_fds[1]);
      if (!closes) (void)!read(pipe_fds[0], &byte, 1);
      _exit(0);
    }
    EXPECT_TRUE(wait_for(listeners[0].socket.get(), POLLIN, std::chrono::steady_clock::now() + kHangLimit));
    if (closes) waitpid(child, nullptr, 0);
    const base::Fd accepted(accept4(listeners[0].socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto user = user_of_peer(query, accepted.get());
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    if (!closes) waitpid(child, nullptr, 0);
    return user;
  };
  EXPECT_EQ(user_of(false), std::optional<uid_t>(kStranger));
  EXPECT_EQ(user_of(true), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(, StrangerTest, testing::Values("127.0.0.1", "::1"));

TEST(PeerUser, StoresOfAllInterfacesAreForEveryone) {
  EXPECT_FALSE(open_user_query(listen_on("", 0).value()).value());
  EXPECT_TRUE(open_user_query(listen_on("127.0.0.1", 0).value()).value());
}

TEST(PeerUser, AVariableThatCannotBeReadIsAnErrorMessage) {
  base::set_env("COHORT_STORE_ANY_USER", "some");
  const auto server = TcpServer::start({.host = "127.0.0.1"});
  base::unset_env("COHORT_STORE_ANY_USER");
  ASSERT_FALSE(server);
  EXPECT_THAT(server.error().describe(), testing::HasSubstr("COHORT_STORE_ANY_USER=\"some\""));
}

}  // namespace
}  // namespace cohort::store
