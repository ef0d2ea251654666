#include "cohort/elastic/report/health_check.h"

#include <fmt/format.h>
#include <poll.h>

#include "cohort/base/text/json_text.h"
#include "cohort/store/stream/socket.h"

namespace cohort::elastic {

using base::Error;
using base::HttpRequest;
using base::HttpResponse;
using base::Result;

HttpResponse answer_health_check(const HttpRequest& request, const HealthState& state) {
  if (request.method != "GET" && request.method != "HEAD") {
    return {.status = 405, .body = "a health check must be a GET request\n"};
  }
  return {.status = state.is_well ? 200 : 503,
          .content_type = "application/json",
          .body = fmt::format("{{\"state\":{},\"round\":{},\"restarts\":{},\"workers\":{}}}\n",
                              base::json_string(state.state), state.round, state.restarts, state.workers)};
}

Result<HealthCheck> HealthCheck::create(int port, const std::function<HealthState()>& state) {
  Result<std::vector<store::Listener>> listeners = store::listen_on("", port);
  if (!listeners) return Error(listeners.error().message()).with_hint("choose another port");
  std::vector<base::Fd> sockets;
  for (store::Listener& listener : *listeners) sockets.push_back(std::move(listener.socket));
  Result<base::HttpServer> server = base::HttpServer::create(
      std::move(sockets), [state](const HttpRequest& request) { return answer_health_check(request, state()); });
  if (!server) return server.error();
  return HealthCheck(std::move(*server));
}

void HealthCheck::add_watches(std::vector<Watch>& watches) {
  watches.push_back({server_.fd(), POLLIN, [this] { server_.serve(); }});
}

}  // namespace cohort::elastic
