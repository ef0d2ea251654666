/// Answers a liveness probe over HTTP (TORCHELASTIC_HEALTH_CHECK_PORT) from the agent's own loop, so an agent that hangs fails
/// it.
///
///     GET / -> 200 {"state":"running","round":0,"restarts":0,"workers":2}
///
/// PyTorch 2.13 has the variable, but its open-source health_check_server.py starts no server.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/net/http_server.h"
#include "cohort/elastic/events/watch.h"

namespace cohort::elastic {

struct HealthState {
  /// The agent's state: "rendezvous", "running", "stopping", "waiting to restart", "waiting for other nodes".
  const char* state = "rendezvous";
  int round = 0;
  int restarts = 0;
  /// The number of this node's workers that run.
  int workers = 0;
  /// If false, the status is 503.
  bool is_well = true;
};

/// Returns the answer to a request: any path, GET or HEAD. Pure.
base::HttpResponse answer_health_check(const base::HttpRequest& request, const HealthState& state);

class HealthCheck {
 public:
  /// Listens on all interfaces, of both families, because a kubelet uses the pod's address. Errors name the port and the process
  /// that has it.
  static base::Result<HealthCheck> create(int port, const std::function<HealthState()>& state);

  /// `this` must outlive the watches.
  void add_watches(std::vector<Watch>& watches);

 private:
  explicit HealthCheck(base::HttpServer server) : server_(std::move(server)) {}

  base::HttpServer server_;
};

}  // namespace cohort::elastic
