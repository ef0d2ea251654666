#include "cohort/rendezvous/worker_store.h"

#include "cohort/base/system/env.h"

namespace cohort::rendezvous {

base::Result<WorkerStore> WorkerStore::open(const std::string& host, base::IpFamily family) {
  WorkerStore workers;
  if (base::get_env("TORCH_DISABLE_SHARE_RDZV_TCP_STORE").value_or("0") == "1") {
    auto reservation = base::reserve_port();
    if (!reservation) return reservation.error();
    workers.reservation_ = std::move(*reservation);
    return workers;
  }
  store::TcpServerOptions options;
  options.host = host;
  options.family = family;
  auto server = store::TcpServer::start(options);
  if (!server) return base::Error("the workers' store cannot be hosted").caused_by(server.error());
  workers.server_ = std::move(*server);
  return workers;
}

}  // namespace cohort::rendezvous
