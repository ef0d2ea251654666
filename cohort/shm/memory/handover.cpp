#include "cohort/shm/memory/handover.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "cohort/base/text/text.h"
#include "cohort/shm/memory/unix_socket.h"

namespace cohort::shm {
namespace {

using base::errno_text;
using base::Error;
using base::Fd;
using base::Result;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kLookInterval = milliseconds(50);
// A connection that sends nothing blocks the others for at most this time.
constexpr int kHelloMilliseconds = 1000;

// A rank's first message. Other bytes come from a stranger, or from another release of Cohort.
struct Hello {
  char magic[8] = {'c', 'o', 'h', 'o', 'r', 't', '-', 's'};
  uint32_t version = 1;
  int32_t rank = 0;
  int32_t world_size = 0;
  int32_t reserved = 0;
};

bool hand_fd(const Fd& connection, const Fd& fd) {
  char byte = 'f';
  return send_with_fd(connection, {&byte, 1}, &fd) == 1;
}

std::optional<Fd> take_fd(const Fd& connection) {
  char byte = 0;
  auto message = receive_with_fd(connection, {&byte, 1});
  if (message.num_bytes != 1 || !message.fd) return std::nullopt;
  return std::move(message.fd);
}

std::vector<int> absent_ranks(const std::vector<bool>& has_come) {
  std::vector<int> absent;
  for (size_t rank = 0; rank < has_come.size(); ++rank) {
    if (!has_come[rank]) absent.push_back(static_cast<int>(rank));
  }
  return absent;
}

// Returns an error once the time is over or a rank cannot come.
Result<void> look_after(const Meeting& meeting, const std::vector<int>& absent) {
  if (meeting.find_obstacle) {
    if (auto obstacle = meeting.find_obstacle(absent); !obstacle.empty()) return Error(std::move(obstacle));
  }
  if (Clock::now() < meeting.deadline) return {};
  return Error(fmt::format("{} did not connect to the shared memory in time", base::ranks_in_words(absent)))
      .with_hint("see whether these ranks run, or raise the timeout");
}

// Returns the rank that has connected, if it belongs to the group and has not connected before.
std::optional<int> greet(const Fd& connection, const Meeting& meeting, const std::vector<bool>& has_come) {
  if (!is_readable(connection, kHelloMilliseconds)) return std::nullopt;
  Hello hello;
  const Hello expected;
  if (recv(connection.get(), &hello, sizeof(hello), MSG_WAITALL) != sizeof(hello)) return std::nullopt;
  if (std::memcmp(hello.magic, expected.magic, sizeof(hello.magic)) != 0 || hello.version != expected.version ||
      hello.world_size != meeting.world_size || hello.rank <= 0 || hello.rank >= meeting.world_size ||
      has_come[static_cast<size_t>(hello.rank)]) {
    return std::nullopt;
  }
  return hello.rank;
}

}  // namespace

Result<std::vector<int>> hand_over(const Meeting& meeting, const Fd& fd) {
  std::vector<int> pids(static_cast<size_t>(meeting.world_size), 0);
  std::vector<bool> has_come(static_cast<size_t>(meeting.world_size), false);
  has_come[0] = true;
  const Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UnixAddress address(meeting.address);
  if (!listener || bind(listener.get(), address.get(), address.length()) != 0 ||
      listen(listener.get(), meeting.world_size) != 0) {
    return Error(fmt::format("cannot open a UNIX socket to hand over shared memory: {}", errno_text(errno)));
  }
  while (true) {
    const auto absent = absent_ranks(has_come);
    if (absent.empty()) return pids;
    if (!is_readable(listener, static_cast<int>(kLookInterval.count()))) {
      if (auto fine = look_after(meeting, absent); !fine) return fine.error();
      continue;
    }
    const Fd connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto pid = connection ? own_users_process(connection) : std::nullopt;
    const auto rank = pid ? greet(connection, meeting, has_come) : std::nullopt;
    if (!rank || !hand_fd(connection, fd)) continue;
    has_come[static_cast<size_t>(*rank)] = true;
    pids[static_cast<size_t>(*rank)] = *pid;
  }
}

Result<Fd> receive_handed_over(const Meeting& meeting) {
  const UnixAddress address(meeting.address);
  while (true) {
    const Fd connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!connection) return Error(fmt::format("cannot open a UNIX socket: {}", errno_text(errno)));
    const Hello hello{.rank = meeting.rank, .world_size = meeting.world_size};
    const bool connected = connect(connection.get(), address.get(), address.length()) == 0;
    if (connected && !own_users_process(connection)) {
      return Error("a process of another user answers where rank 0 should hand over shared memory");
    }
    if (connected && send(connection.get(), &hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello)) {
      // Rank 0 answers at once, or closes.
      while (!is_readable(connection, static_cast<int>(kLookInterval.count()))) {
        if (auto fine = look_after(meeting, {0}); !fine) return fine.error();
      }
      if (auto fd = take_fd(connection)) return std::move(*fd);
      return Error(
          "rank 0 refused to hand over shared memory: it runs another release of Cohort, expects another number "
          "of ranks, or already has this rank");
    }
    if (auto fine = look_after(meeting, {0}); !fine) return fine.error();
    std::this_thread::sleep_for(milliseconds(1));
  }
}

}  // namespace cohort::shm
