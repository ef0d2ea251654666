/// WorkerServer: the control plane of one rank. Tools ask a running rank what it does, over HTTP on a UNIX socket.
///
///     int main() {
///       cohort::comm::WorkerServer server;  // at TORCH_WORKER_SERVER_SOCKET; does nothing if that is not set
///       ...
///     }
///     $ curl --unix-socket /tmp/rank_0 http://rank/handler/
///     $ curl --unix-socket /tmp/rank_0 -X POST http://rank/handler/cohort_fr_trace
///
/// Corresponds to torch.distributed.elastic.control_plane.worker_main, with PyTorch 2.13's paths (WorkerServer.cpp): GET /, GET
/// /handler/ for the names as JSON, POST /handler/NAME?a=b. The handlers are LibTorch's own (ping, fr_trace_json,
/// wait_counter_values ...), those that a program adds by c10d::control_plane::registerHandler, and two of ours for operations
/// on shared memory, which LibTorch's recorder does not see:
/// ```text
/// cohort_fr_trace_json  dump_flight_recorder()
/// cohort_fr_trace       dump_flight_recorder_text()
/// ```
///
/// The HTTP server is Cohort's: LibTorch exports its WorkerServer class, but its header needs httplib.h, which no LibTorch has.
#pragma once

#include <memory>
#include <string>

#include "cohort/export.h"

namespace cohort::comm {

/// Adds Cohort's handlers to LibTorch's table, so that PyTorch's own servers in this process also have them. WorkerServer calls
/// it.
COHORT_API void register_worker_handlers();

/// Runs handlers in a thread of its own, one after the other; the thread takes no signals. Not for a process that spawns ranks.
class COHORT_API WorkerServer {
 public:
  /// Listens at TORCH_WORKER_SERVER_SOCKET, in which "${rank}" and "${local_rank}" stand for the environment's values, so that
  /// each rank of a host can have its own socket. Does nothing if the variable is not set.
  WorkerServer();
  /// Listens at `path`, to which only this user can connect. Replaces a socket that an ended process has left there.
  /// Throws c10::Error if `path` is taken, too long for a socket (107 bytes) or cannot be made.
  explicit WorkerServer(const std::string& path);
  /// Calls shutdown().
  ~WorkerServer();
  WorkerServer(const WorkerServer&) = delete;
  WorkerServer& operator=(const WorkerServer&) = delete;

  /// Returns "" without a socket.
  std::string path() const;
  /// Waits for the handler that runs, ends the thread and removes the socket. A second call does nothing.
  void shutdown();

 private:
  struct Service;
  std::unique_ptr<Service> service_;
};

}  // namespace cohort::comm
