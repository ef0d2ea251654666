#include "cohort/snapshot/remote_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cohort/base/text/text.h"
#include "cohort/store/tcp/token.h"

namespace cohort::snapshot {

namespace {

constexpr size_t kBufferBytes = size_t{256} << 10;
/// The number of pieces after which other connections have their turn.
constexpr int kMostSteps = 32;

bool is_within(const Request& request, const ServerFiles::File& file) {
  return request.offset <= file.size && request.length <= file.size - request.offset;
}

bool would_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

RemoteClient::RemoteClient(base::Fd socket, KeyOfNode key_of_node)
    : socket_(std::move(socket)),
      key_of_node_(std::move(key_of_node)),
      nonce_(store::random_nonce()),
      output_(nonce_) {}

short RemoteClient::events() const { return has_output() ? POLLOUT : POLLIN; }

bool RemoteClient::advance(ServerFiles& files) {
  for (int i = 0; i < kMostSteps; ++i) {
    const Step step = has_output() ? send_waiting() : receive_left_ > 0 ? receive_payload() : receive_message(files);
    if (step != Step::kGoOn) return step == Step::kWait;
  }
  return true;
}

RemoteClient::Step RemoteClient::send_waiting() {
  if (!output_.empty()) {
    const ssize_t sent = ::send(socket_.get(), output_.data(), output_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return would_wait() ? Step::kWait : Step::kEnd;
    output_.erase(0, static_cast<size_t>(sent));
    return Step::kGoOn;
  }
  off_t offset = send_offset_;
  const ssize_t sent = ::sendfile(socket_.get(), file_.get(), &offset, std::min<uint64_t>(send_left_, kBufferBytes));
  if (sent < 0) return would_wait() ? Step::kWait : Step::kEnd;
  if (sent == 0) return Step::kEnd;
  send_offset_ = offset;
  send_left_ -= static_cast<uint64_t>(sent);
  return Step::kGoOn;
}

RemoteClient::Step RemoteClient::receive_payload() {
  buffer_.resize(kBufferBytes);
  const size_t wanted = std::min<uint64_t>(receive_left_, buffer_.size());
  const ssize_t size = ::recv(socket_.get(), buffer_.data(), wanted, MSG_DONTWAIT);
  if (size < 0) return would_wait() ? Step::kWait : Step::kEnd;
  if (size == 0) return Step::kEnd;
  for (ssize_t done = 0; done < size;) {
    const ssize_t written = ::pwrite(file_.get(), buffer_.data() + done, static_cast<size_t>(size - done),
                                     static_cast<off_t>(receive_offset_));
    if (written <= 0) return Step::kEnd;
    done += written;
    receive_offset_ += static_cast<uint64_t>(written);
  }
  receive_left_ -= static_cast<uint64_t>(size);
  return receive_left_ > 0 ? Step::kGoOn : say(ok_reply());
}

RemoteClient::Step RemoteClient::receive_message(ServerFiles& files) {
  const size_t wanted = is_trusted_ ? sizeof(Request) : sizeof(Greeting);
  char bytes[sizeof(Request)];
  const ssize_t size = ::recv(socket_.get(), bytes, wanted - input_.size(), MSG_DONTWAIT);
  if (size < 0) return would_wait() ? Step::kWait : Step::kEnd;
  if (size == 0) return Step::kEnd;
  input_.append(bytes, static_cast<size_t>(size));
  if (input_.size() < wanted) return Step::kGoOn;
  if (!is_trusted_) return check_proof();
  std::memcpy(&request_, input_.data(), sizeof(request_));
  input_.clear();
  return answer(files);
}

// The answer is this server's own proof.
RemoteClient::Step RemoteClient::check_proof() {
  Greeting greeting;
  std::memcpy(&greeting, input_.data(), sizeof(greeting));
  const std::string key = key_of_node_(greeting.node);
  const std::string_view nonce(greeting.nonce, sizeof(greeting.nonce));
  const std::string proof = store::proof_of(store::Side::kClient, key, nonce_, nonce);
  if (key.empty() || !store::is_same_proof(proof, {greeting.proof, sizeof(greeting.proof)})) return Step::kEnd;
  is_trusted_ = true;
  input_.clear();
  output_ = store::proof_of(store::Side::kServer, key, nonce_, nonce);
  return Step::kGoOn;
}

RemoteClient::Step RemoteClient::answer(ServerFiles& files) {
  const std::string id = id_in(request_.id);
  if (request_.magic != kMagic || id.empty()) return Step::kEnd;
  switch (request_.op) {
    case Op::kMake: {
      const base::Result<void> made = files.make(id, request_.size);
      return say(made ? ok_reply() : failed_reply(made.error().describe()));
    }
    case Op::kWrite:
      return begin_write(files.find(id));
    case Op::kRead:
      return begin_read(files.find(id));
    default:
      return Step::kEnd;
  }
}

RemoteClient::Step RemoteClient::begin_write(const ServerFiles::File* file) {
  if (!file || !is_within(request_, *file) || request_.length == 0) return Step::kEnd;
  file_ = base::Fd(::fcntl(file->fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!file_) return Step::kEnd;
  receive_offset_ = request_.offset;
  receive_left_ = request_.length;
  return Step::kGoOn;
}

RemoteClient::Step RemoteClient::begin_read(const ServerFiles::File* file) {
  if (!file) return say(failed_reply("there is no such file"));
  if (!is_within(request_, *file))
    return say(failed_reply(fmt::format("the file has only {}", base::format_bytes(file->size))));
  file_ = base::Fd(::fcntl(file->fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!file_) return say(failed_reply(base::errno_text(errno)));
  send_offset_ = static_cast<int64_t>(request_.offset);
  send_left_ = request_.length;
  return say(ok_reply());
}

RemoteClient::Step RemoteClient::say(const Reply& reply) {
  output_.assign(reinterpret_cast<const char*>(&reply), sizeof(reply));
  return Step::kGoOn;
}

}  // namespace cohort::snapshot
