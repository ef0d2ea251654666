/// TensorChannel: sends tensors from one process of a host to another without a copy: both use the same memory, and each sees
/// what the other writes. Corresponds to torch.multiprocessing.Pipe and Queue for tensors in PyTorch
/// (multiprocessing/reductions.py); in Python it is torchcohort.TensorChannel.
///
///     TensorListener listener("weights");                        // one process
///     TensorChannel channel = listener.accept();
///     channel.send(weight);
///
///     TensorChannel other = TensorChannel::connect("weights");   // another process
///     other.receive().add_(1);                                   // the first one sees it
///
/// The name is an abstract UNIX socket of this user: it is not a file, leaves nothing behind, and both ends refuse other users.
/// Both processes must be in one network namespace. A tensor's memory lives as long as any process uses it or it is on its
/// way: a sender may drop the tensor, or end, right after send().
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "cohort/base/file/file.h"
#include "cohort/export.h"

namespace cohort::comm {

/// One end of a connection; both ends send and receive. Move-only. One thread at a time may send, and one may receive.
/// Errors: c10::ValueError for tensors that can never be sent, c10::DistNetworkError for the rest.
class COHORT_API TensorChannel {
 public:
  TensorChannel(TensorChannel&& other) noexcept;
  TensorChannel& operator=(TensorChannel&& other) noexcept;
  ~TensorChannel();
  /// Makes two connected ends, for threads, or for ranks that are forked later. Each process should close() the end that it does
  /// not use: as with a pipe, an end is closed when its last copy is closed.
  static std::pair<TensorChannel, TensorChannel> make_pair();
  /// Waits for a TensorListener of that name, at most `timeout`.
  static TensorChannel connect(const std::string& name, std::chrono::milliseconds timeout = std::chrono::seconds(30));

  /// Moves the tensor's storage to shared memory if it is not there (share_memory.h), then sends it with sizes, strides, offset
  /// and requires_grad. Blocks while about a hundred tensors wait to be received.
  /// Throws for tensors that share_memory refuses, for results of operations that require a gradient (detach() them), for lazy
  /// conjugates and negatives, and for tensors that Tensor::share_memory_() has shared: their files can shrink while others read.
  void send(const at::Tensor& tensor);
  /// Blocks until a tensor comes. A storage that is received twice is one storage here. Throws once the other end is closed and
  /// everything it has sent is received, and for a message that is not a tensor; after the latter the channel can still be used.
  at::Tensor receive();
  /// Whether receive() would not block. Waits up to `timeout` for a tensor; 0 only checks.
  bool poll(std::chrono::milliseconds timeout = {});
  /// Closes this end; the other end learns of it. A second call does nothing.
  void close();
  /// The process that connected or listens; 0 for ends of make_pair().
  int peer_pid() const { return peer_pid_; }

 private:
  friend class TensorListener;
  TensorChannel(base::Fd socket, int peer_pid);
  std::string other_end() const;
  void check_open(const char* operation) const;

  base::Fd socket_;
  int peer_pid_ = 0;
};

/// Waits for processes that want to connect. Move-only; one thread at a time.
class COHORT_API TensorListener {
 public:
  TensorListener(TensorListener&& other) noexcept;
  TensorListener& operator=(TensorListener&& other) noexcept;
  ~TensorListener();
  /// `name`: 1 to 64 bytes. Throws c10::ValueError for another length, and if another listener of this user has the name.
  explicit TensorListener(const std::string& name);
  /// Blocks until a process of this user connects. If `timeout` is absent, waits without limit. Throws c10::DistNetworkError.
  TensorChannel accept(std::optional<std::chrono::milliseconds> timeout = {});

 private:
  std::string name_;
  base::Fd socket_;
};

}  // namespace cohort::comm
