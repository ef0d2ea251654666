// A server that has no memory for more, or no file descriptors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "tests/store/server_test.h"

namespace cohort::store {
namespace {

using testing::ElementsAre;

class FullStoreTest : public ServerTest {
 protected:
  FullStoreTest() : ServerTest({.host = "127.0.0.1", .max_bytes = 1000}) {}
};

// Sends a key and a value of `num_bytes` together; the key is sent as "/k". The request has an answer, so no other one comes
// with it.
base::Result<std::string> fill(TcpClient& client, size_t num_bytes) {
  return client.compare_set("k", "", std::string(num_bytes - 2, 'x'));
}

testing::Matcher<std::string> no_room_for(const std::string& sum, int times) {
  return testing::MatchesRegex(
      R"((\[cohort\] warning: the store drops its client 127\.0\.0\.1:[0-9]+: the store may hold 1000 B and would hold )" +
      sum + R"( with this request; COHORT_STORE_MEMORY=MIB allows it more)" + "\n){" + std::to_string(times) + "}");
}

TEST_F(FullStoreTest, AServerTakesAllThatItMayHoldMessage) {
  testing::internal::CaptureStderr();
  EXPECT_FALSE(fill(*connect(), 1001).ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), no_room_for("1001 B", 1));
  EXPECT_TRUE(fill(*connect(), 1000).ok());
  EXPECT_THAT(*connect()->list_keys(), ElementsAre("k"));
}

TEST_F(FullStoreTest, AFullServerCanBeReadAndEmptied) {
  const auto good = connect();
  const auto value = fill(*good, 1000).value();
  EXPECT_TRUE(*good->check({"k"}));
  EXPECT_EQ(*good->get("k"), value);
  EXPECT_THAT(*good->multi_get({"k", "k"}), ElementsAre(value, value));
  EXPECT_EQ(*good->num_keys(), 1);
  EXPECT_THAT(*good->list_keys(), ElementsAre("k"));
  EXPECT_EQ(*good->queue_len("k"), 0);
  EXPECT_EQ(*good->queue_pop("k", false), std::nullopt);
  EXPECT_TRUE(*good->delete_key("k"));
  EXPECT_TRUE(fill(*good, 1000).ok());
}

// Whatever would stay in it, a wait for what is not there as well.
TEST_F(FullStoreTest, AFullServerTakesNothingIn) {
  const auto good = connect();
  ASSERT_TRUE(fill(*good, 1000).ok());
  testing::internal::CaptureStderr();
  const auto ping = encode({.query = Query::kPing, .keys = {}, .values = {}, .number = 7});
  for (const auto& request : std::vector<Request>{{Query::kSet, {"/l"}, {"1"}, 0},
                                                  {Query::kMultiSet, {"/l"}, {"1"}, 0},
                                                  {Query::kCompareSet, {"/l"}, {"", "1"}, 0},
                                                  {Query::kAppend, {"/l"}, {"1"}, 0},
                                                  {Query::kAdd, {"/l"}, {}, 1},
                                                  {Query::kQueuePush, {"/l"}, {"1"}, 0},
                                                  {Query::kWait, {"/k", "/l"}, {}, 0},
                                                  {Query::kBarrier, {"/l"}, {}, 1}}) {
    const auto client = connect_raw();
    const auto bytes = greeting(7) + encode(request) + ping;
    ASSERT_EQ(send(client.get(), bytes.data(), bytes.size(), 0), static_cast<long>(bytes.size()));
    char echoes[8];
    EXPECT_LT(recv(client.get(), echoes, sizeof(echoes), MSG_WAITALL), 8) << static_cast<int>(request.query);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), no_room_for("1\\.[01] KiB", 8));
  EXPECT_THAT(*good->list_keys(), ElementsAre("k"));
  EXPECT_EQ(*good->queue_len("l"), 0);
}

// Lowers the limit of open files to those that are open.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const base::Fd lowest(dup(STDERR_FILENO));
    const rlimit full{static_cast<rlim_t>(lowest.get()), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &full);
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// Looks at what has arrived so far, and does not wait.
bool is_closed_there(const base::Fd& socket) {
  char byte;
  return recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

TEST_F(FullStoreTest, WhereFilesAreScarceTheOldestSilentClientMakesRoomMessage) {
  const auto good = connect();
  const auto silent = connect_raw();
  const auto younger = connect_raw();
  const auto other = connect();  // who comes after them: they have been let in
  std::vector<base::Fd> late(3);
  for (auto& client : late) client = base::Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto is_served = [this](const base::Fd& client) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const auto bytes = greeting(7);
    send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    char echo[4];
    return recv(client.get(), echo, sizeof(echo), MSG_WAITALL) == 4;
  };
  testing::internal::CaptureStderr();
  {
    const NoMoreFiles none;
    EXPECT_TRUE(is_served(late[0]));
    EXPECT_TRUE(is_closed_there(silent));
    EXPECT_FALSE(is_closed_there(younger));
    EXPECT_TRUE(is_served(late[1]));
    EXPECT_TRUE(is_closed_there(younger));
    EXPECT_FALSE(is_served(late[2])) << "the others have shown who they are";
    EXPECT_TRUE(good->check({}).ok());
  }
  const std::string dropped =
      "[cohort] warning: the store drops a client that has sent nothing yet: it has no file descriptors left for "
      "others\n";
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            dropped + dropped +
                "[cohort] warning: the store has no file descriptors left for more clients than 4; raise the limit of "
                "open files (ulimit -n)\n");
}

}  // namespace
}  // namespace cohort::store
