/// The control plane of one rank: HTTP on a UNIX socket, through which a tool asks a running rank what it does.
///
///     int main() {
///       cohort::comm::WorkerServer server;  // at TORCH_WORKER_SERVER_SOCKET; nothing without it
///       ...
///     }
///     $ curl --unix-socket /tmp/rank_0 http://rank/handler/
///     $ curl --unix-socket /tmp/rank_0 -X POST http://rank/handler/cohort_fr_trace
///
/// The twin of torch.distributed.elastic.control_plane.worker_main, with PyTorch 2.13's paths (WorkerServer.cpp): GET /, GET
/// /handler/ for the names as JSON, POST /handler/NAME?a=b. The handlers are LibTorch's own (ping, fr_trace_json,
/// wait_counter_values ...), whatever a program adds by c10d::control_plane::registerHandler, and two of ours, for the operations
/// on shared memory, which LibTorch's recorder does not see:
///     cohort_fr_trace_json  dump_flight_recorder()
///     cohort_fr_trace       dump_flight_recorder_text()
///
/// The HTTP part is ours: LibTorch exports its WorkerServer class, but its header needs httplib.h, which no LibTorch has.
#pragma once

#include <memory>
#include <string>

#include "cohort/export.h"

namespace cohort::comm {

/// Adds our handlers to LibTorch's table, so that PyTorch's own servers in this process have them too. A WorkerServer calls this.
COHORT_API void register_worker_handlers();

/// Has a thread of its own, in which handlers run, one after the other; it takes no signals. Not in a process that spawns ranks.
class COHORT_API WorkerServer {
 public:
  /// At TORCH_WORKER_SERVER_SOCKET, where "${rank}" and "${local_rank}" stand for those of the environment, so that the ranks of
  /// a host can have a socket each; does nothing if the variable is not set.
  WorkerServer();
  /// At `path`, which only this user can connect to. A socket that an ended process has left there is replaced.
  /// Throws c10::Error if `path` is taken, too long for a socket (107 bytes) or cannot be made.
  explicit WorkerServer(const std::string& path);
  /// As shutdown().
  ~WorkerServer();
  WorkerServer(const WorkerServer&) = delete;
  WorkerServer& operator=(const WorkerServer&) = delete;

  /// "" if there is none.
  std::string path() const;
  /// Waits for the handler that runs, ends the thread and removes the socket. A second call does nothing.
  void shutdown();

 private:
  struct Service;
  std::unique_ptr<Service> service_;
};

}  // namespace cohort::comm
