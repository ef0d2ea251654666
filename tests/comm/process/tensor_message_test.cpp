// What a TensorChannel does with messages that no TensorChannel has sent.
#include "cohort/comm/process/tensor_message.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "cohort/comm/process/share_memory.h"
#include "cohort/comm/process/tensor_channel.h"
#include "cohort/shm/memory/unix_socket.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using comm::TensorMessage;
using test::error_of;
using namespace std::chrono_literals;

constexpr size_t kPageBytes = 4096;

TensorMessage good_message() {
  TensorMessage message;
  message.dtype = static_cast<int32_t>(at::kFloat);
  message.dimensions = 2;
  message.memory_bytes = kPageBytes;
  message.storage_bytes = 96;
  message.sizes[0] = 4;
  message.sizes[1] = 6;
  message.strides[0] = 6;
  message.strides[1] = 1;
  return message;
}

std::string verdict(const std::function<void(TensorMessage&)>& change) {
  auto message = good_message();
  change(message);
  const auto result = comm::check_message(message);
  return result ? "fine" : result.error().describe();
}

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

TEST(TensorMessage, IsBelievedOnlyWithinItsBoundsMessage) {
  EXPECT_EQ(verdict([](auto&) {}), "fine");
  EXPECT_EQ(verdict([](auto& m) { m.magic[0] = 'x'; }), "it is not a tensor");
  EXPECT_EQ(verdict([](auto& m) { m.version = 2; }), "it has format 2, and this release of Cohort knows 1");
  for (const int dtype : {-1, static_cast<int>(at::kQInt8), static_cast<int>(at::ScalarType::Undefined), 1000}) {
    EXPECT_EQ(verdict([&](auto& m) { m.dtype = dtype; }),
              "its dtype, number " + std::to_string(dtype) + ", is not known");
  }
  EXPECT_EQ(verdict([](auto& m) { m.dimensions = 65; }), "it has 65 dimensions");
  EXPECT_EQ(verdict([](auto& m) { m.requires_grad = 1; }), "fine");
  EXPECT_EQ(verdict([](auto& m) {
              m.requires_grad = 1;
              m.dtype = static_cast<int32_t>(at::kInt);
            }),
            "it requires a gradient, which dtype Int cannot have");
  EXPECT_EQ(verdict([](auto& m) { m.storage_bytes = 5000; }),
            "its storage, 5000 bytes from byte 0 on, is not within its memory of 4096 bytes");
  EXPECT_EQ(verdict([](auto& m) { m.storage_offset = 4064; }),
            "its storage, 96 bytes from byte 4064 on, is not within its memory of 4096 bytes");
  EXPECT_EQ(verdict([](auto& m) { m.storage_offset = ~uint64_t{0}; }),
            "its storage, 96 bytes from byte 18446744073709551615 on, is not within its memory of 4096 bytes");
}

TEST(TensorMessage, ElementsLieInTheStorageMessage) {
  const std::string outside = "its elements are not within its storage of 96 bytes";
  EXPECT_EQ(verdict([](auto& m) { m.element_offset = 1; }), outside);
  EXPECT_EQ(verdict([](auto& m) { m.element_offset = -1; }), outside);
  EXPECT_EQ(verdict([](auto& m) { m.element_offset = kHuge; }), outside);
  EXPECT_EQ(verdict([](auto& m) { m.sizes[0] = 5; }), outside);
  EXPECT_EQ(verdict([](auto& m) { m.sizes[0] = -4; }), outside);
  EXPECT_EQ(verdict([](auto& m) { m.sizes[0] = kHuge; }), outside);
  EXPECT_EQ(verdict([](auto& m) { m.sizes[0] = m.sizes[1] = int64_t{1} << 32; }), outside);
  EXPECT_EQ(verdict([](auto& m) { m.strides[0] = kHuge; }), outside);
  EXPECT_EQ(verdict([](auto& m) { m.strides[1] = -1; }), outside);
  EXPECT_EQ(verdict([](auto& m) { m.dtype = static_cast<int32_t>(at::kDouble); }), outside);
  EXPECT_EQ(verdict([](auto& m) { m.sizes[0] = 0; }), "fine");
  EXPECT_EQ(verdict([](auto& m) { m.strides[0] = 0; }), "fine");
  EXPECT_EQ(verdict([](auto& m) { m.dimensions = 0; }), "fine");
  EXPECT_EQ(verdict([](auto& m) { m.strides[0] = m.strides[1] = 0, m.sizes[0] = m.sizes[1] = 1 << 20; }), "fine");
}

// A channel whose other end says what it likes.
class Impostor {
 public:
  Impostor() : listener_(name_), socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)), channel_(connected()) {}

  // What the channel makes of these bytes, and of the descriptor if there is one.
  std::string send(const std::string& bytes, const base::Fd* fd = nullptr) {
    EXPECT_EQ(shm::send_with_fd(socket_, bytes, fd), static_cast<ptrdiff_t>(bytes.size()));
    auto text = error_of([&] { channel_.receive(); });
    const auto expected = "[cohort] receive on a tensor channel: what the other end (process " +
                          std::to_string(getpid()) + ") has sent cannot be used\n  caused by: ";
    return text.starts_with(expected) ? text.substr(expected.size()) : text;
  }
  std::string send(const TensorMessage& message, const base::Fd* fd = nullptr) {
    return send(std::string(reinterpret_cast<const char*>(&message), sizeof(message)), fd);
  }

 private:
  comm::TensorChannel connected() {
    const shm::UnixAddress address("cohort-tensors." + std::to_string(geteuid()) + "." + name_);
    EXPECT_EQ(::connect(socket_.get(), address.get(), address.length()), 0);
    return listener_.accept(30s);
  }

  std::string name_ = "impostor" + std::to_string(getpid());
  comm::TensorListener listener_;
  base::Fd socket_;
  comm::TensorChannel channel_;
};

base::Fd make_memfd(size_t size, unsigned seals) {
  base::Fd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}
constexpr unsigned kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

TEST(TensorMessage, BadInputIsRefusedAndTheChannelGoesOnMessage) {
  Impostor impostor;
  const auto good = make_memfd(kPageBytes, kAllSeals);
  const std::string not_sealed = "was given something other than shared memory of 4.0 KiB with a fixed size";
  const auto num_fds = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = num_fds();
  EXPECT_EQ(impostor.send("hello"), "it is not a tensor");
  EXPECT_EQ(impostor.send("hello", &good), "it is not a tensor");
  EXPECT_EQ(impostor.send(std::string(sizeof(TensorMessage), 'x')), "it is not a tensor");
  EXPECT_EQ(impostor.send(std::string(100000, 'x'), &good), "it is not a tensor");
  EXPECT_EQ(
      impostor.send(good_message()),
      "its memory was not received with it\n  hint: this process may have no file descriptor left: see ulimit -n");
  for (const auto* file : {"/dev/null", "/proc/self/exe", "/proc/self/status"}) {
    const base::Fd fd(open(file, O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(impostor.send(good_message(), &fd), not_sealed) << file;
  }
  const auto can_shrink = make_memfd(kPageBytes, F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_EQ(impostor.send(good_message(), &can_shrink), not_sealed);
  const auto other_size = make_memfd(2 * kPageBytes, kAllSeals);
  EXPECT_EQ(impostor.send(good_message(), &other_size), not_sealed);
  auto odd = good_message();
  odd.memory_bytes = 100;
  EXPECT_EQ(impostor.send(odd, &good), "its memory is not a whole number of pages");
  EXPECT_EQ(impostor.send(good_message(), &good), "(no error)");
  EXPECT_EQ(num_fds(), before + 2);  // can_shrink and other_size
}

// A second descriptor in one message is not kept.
TEST(TensorMessage, OfSeveralDescriptorsOneIsTaken) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const base::Fd a(ends[0]);
  const base::Fd b(ends[1]);
  char byte = 'x';
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  auto* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(2 * sizeof(int));
  std::memcpy(CMSG_DATA(header), ends, sizeof(ends));
  const auto next_fd = [] {
    const base::Fd probe(dup(0));
    return probe.get();
  };
  const int before = next_fd();
  ASSERT_EQ(sendmsg(a.get(), &message, 0), 1);
  {
    const auto received = shm::receive_with_fd(b, {&byte, 1});
    EXPECT_EQ(received.num_bytes, 1);
    EXPECT_EQ(received.fd.get(), before);
    EXPECT_GT(next_fd(), before);
  }
  EXPECT_EQ(next_fd(), before);
}

COHORT_WORKER(message_without_room) {
  auto [a, b] = comm::TensorChannel::make_pair();
  a.send(at::ones({1}));
  const base::Fd highest(dup(0));
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const auto full = rlimit{static_cast<rlim_t>(highest.get()), limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &full) == 0);
  const auto error = error_of([&, &end = b] { end.receive(); });
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  REQUIRE_EQUAL(error,
                "[cohort] receive on a tensor channel: what the other end has sent cannot be used\n"
                "  caused by: its memory was not received with it\n"
                "  hint: this process may have no file descriptor left: see ulimit -n");
  a.send(at::ones({1}));
  REQUIRE(at::equal(b.receive(), at::ones({1})));
}

TEST(TensorMessage, WithoutADescriptorLeftTheReasonIsNamedMessage) {
  test::run_workers("message_without_room", {.world_size = 1}).expect_success();
}

// Connects as another user, and reports what it reads there: 0, the end, is an exit code of 0.
int exit_code_of_a_stranger(const std::string& name) {
  const int child = fork();
  if (child == 0) {
    const shm::UnixAddress address("cohort-tensors." + std::to_string(geteuid()) + "." + name);
    if (setuid(65534) != 0) _exit(3);
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (connect(socket, address.get(), address.length()) != 0) _exit(2);
    char byte = 0;
    _exit(read(socket, &byte, 1) == 0 ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WEXITSTATUS(status);
}

TEST(TensorListener, AnotherUserIsToldNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto name = "stranger" + std::to_string(getpid());
  comm::TensorListener listener(name);
  std::atomic<bool> is_over = false;
  std::thread accepting([&] {
    const auto expected = "[cohort] no process connected to tensor channel \"" + name + "\" within 100 ms";
    while (!is_over) EXPECT_EQ(error_of([&] { listener.accept(100ms); }), expected);
  });
  EXPECT_EQ(exit_code_of_a_stranger(name), 0);
  is_over = true;
  accepting.join();
}

}  // namespace
}  // namespace cohort
