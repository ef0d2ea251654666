// The launcher's side alone: who may put, take, write and read, and what hostile clients achieve.
#include "cohort/snapshot/snapshot_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "cohort/base/file/file.h"
#include "cohort/base/text/text.h"
#include "cohort/shm/memory/unix_socket.h"
#include "cohort/snapshot/free_memory.h"
#include "cohort/snapshot/server_connection.h"
#include "cohort/snapshot/server_files.h"
#include "cohort/snapshot/version_file.h"
#include "cohort/store/stream/socket.h"

namespace cohort::snapshot {
namespace {

/// Memory files of Cohort that this process holds.
int num_memory_files() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    count += std::filesystem::read_symlink(entry.path(), error).string().starts_with("/memfd:cohort") ? 1 : 0;
  }
  return count;
}

base::Fd memory_file() {
  base::Fd fd;
  (void)VersionFile::create(8192, &fd);
  return fd;
}

TEST(ServerFiles, HoldsNoMoreFilesThanItMayMessage) {
  ServerFiles files(2);
  ASSERT_TRUE(files.put("0/0", memory_file()));
  ASSERT_TRUE(files.make("1/0", 8192));
  const char* const text = "the launcher already holds 2 memory files";
  const auto put = files.put("2/0", memory_file());
  EXPECT_EQ(put ? "none" : put.error().describe(), text);
  const auto made = files.make("2/0", 8192);
  EXPECT_EQ(made ? "none" : made.error().describe(), text);
  EXPECT_EQ(files.find("2/0"), nullptr);
  EXPECT_TRUE(files.put("1/0", memory_file())) << "in its place";
  EXPECT_TRUE(files.make("1/0", 4096)) << "in its place";
  files.drop("0/0");
  EXPECT_TRUE(files.put("2/0", memory_file()));
}

class SnapshotServerTest : public testing::Test {
 protected:
  void SetUp() override {
    server_ = SnapshotServer::start("").value();
    ASSERT_TRUE(server_->serve_nodes("127.0.0.1", {server_->public_key()}));
  }
  ServerConnection client() const { return ServerConnection::connect(server_->name()).value(); }
  base::Fd connect_remotely() const {
    const auto words = base::split(*client().where(), ' ');
    return store::connect_to(words[0], std::stoi(words[1]), std::chrono::seconds(60)).value();
  }
  std::unique_ptr<SnapshotServer> server_;
};

TEST_F(SnapshotServerTest, GivesBackWhatWasPutIn) {
  {
    auto first = client();
    const base::Fd fd = memory_file();
    ASSERT_EQ(::pwrite(fd.get(), "hello", 5, 100), 5);
    ASSERT_TRUE(first.put("3/0", fd));
    ASSERT_TRUE(first.put("3/1", fd));
    ASSERT_TRUE(first.put("3/1", fd));
    ASSERT_TRUE(first.drop("3/1"));
  }
  const auto files = client().take_all();
  ASSERT_TRUE(files);
  ASSERT_EQ(files->size(), 1u);
  EXPECT_EQ((*files)[0].id, "3/0");
  EXPECT_EQ((*files)[0].size, 8192u);
  char text[5];
  ASSERT_EQ(::pread((*files)[0].fd.get(), text, 5, 100), 5);
  EXPECT_EQ(std::string(text, 5), "hello");
}

TEST_F(SnapshotServerTest, HoldsNothingOnceItIsGone) {
  const int before = num_memory_files();
  ASSERT_TRUE(client().put("0/0", memory_file()));
  EXPECT_EQ(num_memory_files(), before + 1);
  server_.reset();
  EXPECT_EQ(num_memory_files(), before);
}

TEST_F(SnapshotServerTest, TakesMemoryFilesOfAFixedSizeOnly) {
  const char* const text = "was given something other than a memory file of a fixed size";
  const base::Fd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(client().put("0/0", file).error().message(), text);
  const base::Fd growing(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(client().put("0/0", growing).error().message(), text);
  EXPECT_EQ(client().put("NO NAME", file).error().message(), "the file has no name");
  EXPECT_TRUE(client().take_all()->empty());
}

TEST_F(SnapshotServerTest, FilesThatAreStillEmptyCountAsFull) {
  const auto text = [](const char* path) { return base::read_file(path).value(); };
  const auto available = free_memory("/sys/fs/cgroup", text("/proc/self/cgroup"), text("/proc/meminfo"));
  ASSERT_TRUE(available);
  base::Fd first;
  base::Fd second;
  ASSERT_TRUE(VersionFile::create(available->num_bytes / 10 * 6, &first));
  ASSERT_TRUE(VersionFile::create(available->num_bytes / 10 * 6, &second));
  ASSERT_TRUE(client().put("0/0", first));
  EXPECT_TRUE(client().put("0/0", second)) << "in its place";
  const auto refused = client().put("1/0", first);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(),
              testing::MatchesRegex("[0-9.]+ .iB of memory are needed, and the .* has [0-9.]+ .iB left"));
  ASSERT_TRUE(client().drop("0/0"));
  EXPECT_TRUE(client().put("1/0", first));
}

TEST_F(SnapshotServerTest, ClientsThatTalkNonsenseAreDropped) {
  const shm::UnixAddress address(server_->name());
  for (const std::string& bytes : {std::string("x"), std::string(sizeof(Request), 'x'), std::string(5000, '\0')}) {
    const base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(socket.get(), address.get(), address.length()), 0);
    ASSERT_GT(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
    char byte;
    EXPECT_LE(::recv(socket.get(), &byte, 1, 0), 0);
  }
  EXPECT_TRUE(client().where());
}

TEST_F(SnapshotServerTest, RanksOfOtherNodesWriteAndRead) {
  auto own = client();
  auto remote = RemoteServerConnection::connect(own, {}, *own.where());
  ASSERT_TRUE(remote) << remote.error().describe();
  std::vector<std::byte> bytes(3 << 20);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i % 253);
  ASSERT_TRUE(remote->make("copy/0/0", 4 << 20));
  ASSERT_TRUE(remote->write("copy/0/0", 1000, bytes));
  std::vector<std::byte> back(bytes.size());
  ASSERT_TRUE(remote->read("copy/0/0", 1000, back));
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(remote->read("copy/1/0", 0, back).error().message(), "there is no such file");
  EXPECT_EQ(remote->read("copy/0/0", 2 << 20, back).error().message(), "the file has only 4.0 MiB");
  ASSERT_TRUE(remote->make("copy/0/0", 4 << 20)) << "of that size there is one";
  ASSERT_TRUE(remote->read("copy/0/0", 1000, back));
  EXPECT_EQ(back, bytes);
  EXPECT_FALSE(remote->write("copy/0/0", 2 << 20, bytes)) << "it would go beyond the end";
}

// Nobody but a failed call says why it failed.
TEST_F(SnapshotServerTest, AnInterruptionOfLongAgoIsForgotten) {
  auto own = client();
  auto remote = RemoteServerConnection::connect(own, {}, *own.where());
  ASSERT_TRUE(remote) << remote.error().describe();
  errno = EINTR;
  const auto made = remote->make("copy/0/0", 4096);
  EXPECT_TRUE(made) << made.error().describe();
}

TEST_F(SnapshotServerTest, MemoryThatIsNotThereIsRefused) {
  auto own = client();
  auto remote = RemoteServerConnection::connect(own, {}, *own.where());
  const auto refused = remote->make("copy/0/0", uint64_t{1} << 50);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), testing::StartsWith("1.0 PiB of memory are needed, and the "));
  EXPECT_TRUE(remote->make("copy/0/0", 4096)) << "the connection goes on";
}

TEST_F(SnapshotServerTest, ListensAtOneAddressOnly) {
  auto own = client();
  const auto words = base::split(*own.where(), ' ');
  EXPECT_EQ(words[0], "127.0.0.1");
  EXPECT_FALSE(store::connect_to("127.0.0.2", std::stoi(words[1]), std::chrono::milliseconds(50)));
  ASSERT_TRUE(server_->serve_nodes("127.0.0.1", {server_->public_key()}));
  EXPECT_EQ(base::split(*own.where(), ' ')[1], words[1]);
}

TEST_F(SnapshotServerTest, StrangersLearnNothing) {
  auto own = client();
  const auto words = base::split(*own.where(), ' ');
  const auto refused = RemoteServerConnection::connect(own, {}, words[0] + " " + words[1] + " " + std::string(64, '0'));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().describe(),
            "the launcher at 127.0.0.1:" + words[1] +
                " and this node's do not trust each other\n"
                "  hint: give all nodes the same token (COHORT_TOKEN or the token file of --rdzv-conf)");
  const base::Fd socket = connect_remotely();
  char nonce[kSecretBytes];
  ASSERT_EQ(::recv(socket.get(), nonce, sizeof(nonce), MSG_WAITALL), 32);
  const std::string guess(64 + sizeof(Request), 'x');
  ASSERT_GT(::send(socket.get(), guess.data(), guess.size(), MSG_NOSIGNAL), 0);
  EXPECT_LE(::recv(socket.get(), nonce, sizeof(nonce), 0), 0);
  EXPECT_EQ(RemoteServerConnection::connect(own, {}, "").error().message(),
            "the other node's launcher takes no connections");
}

// Ticket and public keys go through stores that strangers may read.
TEST_F(SnapshotServerTest, WhoKnowsTicketAndPublicKeysProvesNothing) {
  const std::string where = *client().where();
  const auto stranger = SnapshotServer::start("").value();
  ASSERT_TRUE(stranger->serve_nodes("127.0.0.1", {server_->public_key(), stranger->public_key()}));
  auto own = ServerConnection::connect(stranger->name()).value();
  for (const RemoteServerConnection::Nodes& nodes :
       {RemoteServerConnection::Nodes{0, 0}, RemoteServerConnection::Nodes{1, 0},
        RemoteServerConnection::Nodes{7, 0}}) {
    const auto refused = RemoteServerConnection::connect(own, nodes, where);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message(), testing::HasSubstr(" and this node's do not trust each other"));
  }
  const auto unknown = RemoteServerConnection::connect(own, {1, 2}, where);
  EXPECT_EQ(unknown ? "none" : unknown.error().message(), "the launcher of node 2 takes no part in snapshots");
}

TEST_F(SnapshotServerTest, NodesOfTheRoundTrustEachOtherAndNoFormerOne) {
  const auto other = SnapshotServer::start("").value();
  const std::vector<std::string> public_keys = {server_->public_key(), other->public_key()};
  ASSERT_TRUE(server_->serve_nodes("127.0.0.1", public_keys));
  ASSERT_TRUE(other->serve_nodes("127.0.0.1", public_keys));
  auto own = ServerConnection::connect(other->name()).value();
  const std::string where = *client().where();
  auto remote = RemoteServerConnection::connect(own, {1, 0}, where);
  ASSERT_TRUE(remote) << remote.error().describe();
  EXPECT_TRUE(remote->make("copy/2/0", 4096));
  EXPECT_FALSE(RemoteServerConnection::connect(own, {0, 0}, where)) << "it says that it is another node";
  ASSERT_TRUE(server_->serve_nodes("127.0.0.1", {server_->public_key(), ""}));
  EXPECT_FALSE(RemoteServerConnection::connect(own, {1, 0}, where));
}

/// As many descriptors as may be.
void allow_many_files() {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST_F(SnapshotServerTest, SilentStrangersEndBeforeWhoHasProvedItself) {
  allow_many_files();
  auto own = client();
  auto remote = RemoteServerConnection::connect(own, {}, *own.where());
  ASSERT_TRUE(remote) << remote.error().describe();
  std::vector<base::Fd> strangers;
  for (size_t i = 0; i < SnapshotServer::kMostConnections + 50; ++i) strangers.push_back(connect_remotely());
  char nonce[kSecretBytes];
  ASSERT_EQ(::recv(strangers.back().get(), nonce, sizeof(nonce), MSG_WAITALL), 32) << "the server has seen all";
  const auto made = remote->make("copy/0/0", 4096);
  EXPECT_TRUE(made) << made.error().describe();
  EXPECT_TRUE(RemoteServerConnection::connect(own, {}, *own.where())) << "there is room for those that come now";
}

TEST_F(SnapshotServerTest, RanksThatComeLateDoNotEndThoseBefore) {
  allow_many_files();
  auto first = client();
  std::vector<ServerConnection> others;
  for (size_t i = 0; i < SnapshotServer::kMostConnections - 1; ++i) others.push_back(client());
  ASSERT_TRUE(others.back().where());
  EXPECT_FALSE(client().where()) << "one too many";
  EXPECT_TRUE(first.put("0/0", memory_file()));
}

TEST_F(SnapshotServerTest, ASilentClientHoldsNobodyUp) {
  const base::Fd silent = connect_remotely();
  auto own = client();
  auto slow = RemoteServerConnection::connect(own, {}, *own.where());
  ASSERT_TRUE(slow->make("copy/0/0", 1 << 20));
  Request request{.op = Op::kWrite, .length = 1 << 20};
  set_id(request.id, "copy/0/0");
  ASSERT_GT(::send(slow->socket(), &request, sizeof(request), MSG_NOSIGNAL), 0);  // and then nothing
  auto remote = RemoteServerConnection::connect(own, {}, *own.where());
  ASSERT_TRUE(remote);
  EXPECT_TRUE(remote->make("copy/1/0", 4096));
}

TEST_F(SnapshotServerTest, NobodyAnswersOnceItIsGone) {
  const std::string name = server_->name();
  server_.reset();
  EXPECT_EQ(
      ServerConnection::connect(name).error().describe(),
      "cannot connect to the launcher (COHORT_SNAPSHOTS=" + name +
          "): Connection refused (ECONNREFUSED)\n  hint: see whether the launcher has ended, or is in another network "
          "namespace than this process");
}

}  // namespace
}  // namespace cohort::snapshot
