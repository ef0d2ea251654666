/// WorkerStore: the store in which the workers of one round meet, on the host of node 0. Private to this folder.
#pragma once

#include <memory>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/base/net/port.h"
#include "cohort/store/tcp/tcp_server.h"

namespace cohort::rendezvous {

class WorkerStore {
 public:
  /// Starts on a free port of `host` (empty: all interfaces). With TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 it only reserves the
  /// port, and worker 0 must host the store.
  static base::Result<WorkerStore> open(const std::string& host, base::IpFamily family);

  int port() const { return server_ ? server_->port() : reservation_.port; }
  bool is_hosted() const { return server_ != nullptr; }

 private:
  std::unique_ptr<store::TcpServer> server_;
  base::PortReservation reservation_;
};

}  // namespace cohort::rendezvous
