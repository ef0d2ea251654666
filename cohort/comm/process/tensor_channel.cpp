#include "cohort/comm/process/tensor_channel.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "cohort/base/system/deadline.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/backend/host_program.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/process/shared_storage.h"
#include "cohort/comm/process/tensor_message.h"
#include "cohort/shm/memory/unix_socket.h"

namespace cohort::comm {
namespace {

using base::errno_text;
using base::Fd;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
// If absent, a wait has no limit.
using Deadline = std::optional<Clock::time_point>;

// The interval in which a wait checks whether it must end (Ctrl-C in Python).
constexpr auto kSignalLookInterval = milliseconds(250);
constexpr auto kConnectInterval = milliseconds(5);
constexpr size_t kMaxNameBytes = 64;
constexpr int kBacklog = 64;

[[noreturn]] void fail(const std::string& text) { C10_THROW_ERROR(DistNetworkError, "[cohort] " + text); }

// Returns false at the deadline. Throws the host program's interruption.
bool wait_for(const Fd& socket, short events, const Deadline& deadline) {
  while (true) {
    auto slice = kSignalLookInterval;
    if (deadline) slice = std::min(slice, milliseconds(base::milliseconds_until(*deadline)));
    pollfd entry{socket.get(), events, 0};
    if (::poll(&entry, 1, static_cast<int>(slice.count())) > 0) return true;
    throw_interruption();
    if (deadline && Clock::now() >= *deadline) return false;
  }
}

// The address contains the user, so listeners of different users with one name have different addresses.
shm::UnixAddress address_of(const std::string& name) {
  TORCH_CHECK_VALUE(!name.empty() && name.size() <= kMaxNameBytes, "[cohort] the name of a tensor channel has 1 to ",
                    kMaxNameBytes, " bytes, got ", name.size());
  return shm::UnixAddress(fmt::format("cohort-tensors.{}.{}", geteuid(), name));
}

std::string in_quotes(const std::string& name) { return "\"" + name + "\""; }

void check_sendable(const at::Tensor& tensor) {
  check_shareable("send: the tensor", tensor);
  TORCH_CHECK_VALUE(
      !tensor.requires_grad() || tensor.is_leaf(),
      "[cohort] send: the tensor requires a gradient and is the result of an operation, whose history cannot "
      "cross to another process\n  hint: send tensor.detach()");
  TORCH_CHECK_VALUE(!tensor.is_conj() && !tensor.is_neg(), "[cohort] send: the tensor is a lazy ",
                    tensor.is_conj() ? "conjugate" : "negative", " of its memory\n  hint: send tensor.",
                    tensor.is_conj() ? "resolve_conj()" : "resolve_neg()");
  TORCH_CHECK_VALUE(tensor.dim() <= TensorMessage::kMaxDimensions, "[cohort] send: the tensor has ", tensor.dim(),
                    " dimensions, more than ", TensorMessage::kMaxDimensions);
  TORCH_CHECK_VALUE(
      !is_libtorch_shared(tensor.storage()),
      "[cohort] send: the tensor was shared by Tensor::share_memory_() or torch.multiprocessing, whose files can "
      "shrink under their readers\n"
      "  hint: share it with cohort::share_memory (torchcohort.share_memory) instead");
}

// If the other end was closed with unread tensors, the socket returns ECONNRESET once; messages can still be received.
shm::MessageWithFd receive_message(const Fd& socket, TensorMessage& message) {
  while (true) {
    wait_for(socket, POLLIN, std::nullopt);
    auto received = shm::receive_with_fd(socket, {reinterpret_cast<char*>(&message), sizeof(message)}, MSG_DONTWAIT);
    if (received.num_bytes >= 0) return received;
    if (errno != EAGAIN && errno != EINTR && errno != ECONNRESET) {
      fail(fmt::format("receive on a tensor channel failed: {}", errno_text(errno)));
    }
  }
}

base::Result<at::Tensor> to_tensor(const TensorMessage& message, shm::MessageWithFd received) {
  if (received.is_cut || received.num_bytes != sizeof(message)) return base::Error("it is not a tensor");
  if (auto fine = check_message(message); !fine) return fine.error();
  if (message.memory_bytes == 0) {
    return decode_tensor(message, c10::Storage(c10::Storage::use_byte_size_t(), 0,
                                               c10::DataPtr(nullptr, c10::Device(c10::kCPU)), nullptr, false));
  }
  if (!received.fd) {
    return base::Error("its memory was not received with it")
        .with_hint("this process may have no file descriptor left: see ulimit -n");
  }
  auto block = SharedBlock::open(std::move(received.fd), message.memory_bytes);
  if (!block) return block.error();
  if ((*block)->size() != message.memory_bytes) return base::Error("its memory is not a whole number of pages");
  return decode_tensor(message, (*block)->storage_at(message.storage_offset, message.storage_bytes));
}

}  // namespace

// Defined here and not in the header: base::Fd is not part of the library's interface.
TensorChannel::TensorChannel(Fd socket, int peer_pid) : socket_(std::move(socket)), peer_pid_(peer_pid) {}
TensorChannel::TensorChannel(TensorChannel&& other) noexcept = default;
TensorChannel& TensorChannel::operator=(TensorChannel&& other) noexcept = default;
TensorChannel::~TensorChannel() = default;
TensorListener::TensorListener(TensorListener&& other) noexcept = default;
TensorListener& TensorListener::operator=(TensorListener&& other) noexcept = default;
TensorListener::~TensorListener() = default;

std::pair<TensorChannel, TensorChannel> TensorChannel::make_pair() {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    fail(fmt::format("cannot make a tensor channel: {}", errno_text(errno)));
  }
  return {TensorChannel(Fd(ends[0]), 0), TensorChannel(Fd(ends[1]), 0)};
}

TensorChannel TensorChannel::connect(const std::string& name, milliseconds timeout) {
  const auto address = address_of(name);
  const auto deadline = base::deadline_after(timeout);
  while (true) {
    Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) fail(fmt::format("cannot connect to tensor channel {}: {}", in_quotes(name), errno_text(errno)));
    if (::connect(socket.get(), address.get(), address.length()) == 0) {
      const auto pid = shm::own_users_process(socket);
      if (!pid) fail(fmt::format("tensor channel {} is listened on by a process of another user", in_quotes(name)));
      return TensorChannel(std::move(socket), *pid);
    }
    if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
      fail(fmt::format("cannot connect to tensor channel {}: {}", in_quotes(name), errno_text(errno)));
    }
    throw_interruption();
    if (Clock::now() >= deadline) {
      fail(
          fmt::format("no process listens on tensor channel {} after {}\n  hint: make a TensorListener of that name in "
                      "the other process; both must be of one user and in one network namespace",
                      in_quotes(name), base::format_duration(timeout)));
    }
    std::this_thread::sleep_for(kConnectInterval);
  }
}

std::string TensorChannel::other_end() const {
  if (peer_pid_ == 0) return "the other end";
  return fmt::format("the other end (process {})", peer_pid_);
}

void TensorChannel::check_open(const char* operation) const {
  if (!socket_) fail(fmt::format("{} on a tensor channel: this end was closed, or moved away", operation));
}

void TensorChannel::send(const at::Tensor& tensor) {
  check_open("send");
  check_sendable(tensor);
  move_to_shared_memory({tensor.storage()});
  const auto shared = find_shared(tensor.storage());
  const auto message = encode_tensor(tensor);
  while (true) {
    wait_for(socket_, POLLOUT, std::nullopt);
    const auto sent = shm::send_with_fd(socket_, {reinterpret_cast<const char*>(&message), sizeof(message)},
                                        shared.block ? &shared.block->fd() : nullptr, MSG_DONTWAIT);
    if (sent == sizeof(message)) return;
    if (errno == EPIPE || errno == ECONNRESET) {
      fail(fmt::format("send on a tensor channel: {} is closed, nobody will receive the tensor", other_end()));
    }
    if (errno != EAGAIN && errno != EINTR) {
      fail(fmt::format("send on a tensor channel failed: {}", errno_text(errno)));
    }
  }
}

at::Tensor TensorChannel::receive() {
  check_open("receive");
  TensorMessage message;
  auto received = receive_message(socket_, message);
  if (received.num_bytes == 0 && !received.is_cut) {
    fail(fmt::format("receive on a tensor channel: {} is closed, and all that it has sent was received", other_end()));
  }
  auto tensor = to_tensor(message, std::move(received));
  if (!tensor) {
    throw_error<c10::DistNetworkError>(
        base::Error(fmt::format("receive on a tensor channel: what {} has sent cannot be used", other_end()))
            .caused_by(tensor.error()));
  }
  return std::move(*tensor);
}

bool TensorChannel::poll(milliseconds timeout) {
  check_open("poll");
  return wait_for(socket_, POLLIN, base::deadline_after(timeout));
}

void TensorChannel::close() { socket_.reset(); }

TensorListener::TensorListener(const std::string& name) : name_(name) {
  const auto address = address_of(name);
  socket_ = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket_ && bind(socket_.get(), address.get(), address.length()) == 0 && listen(socket_.get(), kBacklog) == 0)
    return;
  TORCH_CHECK_VALUE(!socket_ || errno != EADDRINUSE, "[cohort] tensor channel ", in_quotes(name),
                    " is listened on already, by this or another process of this user\n  hint: choose another name");
  fail(fmt::format("cannot listen on tensor channel {}: {}", in_quotes(name), errno_text(errno)));
}

TensorChannel TensorListener::accept(std::optional<milliseconds> timeout) {
  const auto deadline = timeout ? Deadline(base::deadline_after(*timeout)) : std::nullopt;
  while (true) {
    if (!wait_for(socket_, POLLIN, deadline)) {
      fail(fmt::format("no process connected to tensor channel {} within {}", in_quotes(name_),
                       base::format_duration(*timeout)));
    }
    Fd socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EINTR || errno == EAGAIN || errno == ECONNABORTED) continue;
      fail(fmt::format("cannot accept on tensor channel {}: {}", in_quotes(name_), errno_text(errno)));
    }
    // Processes of other users get no answer.
    if (const auto pid = shm::own_users_process(socket)) return TensorChannel(std::move(socket), *pid);
  }
}

}  // namespace cohort::comm
