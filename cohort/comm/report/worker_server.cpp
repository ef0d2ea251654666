#include "cohort/comm/report/worker_server.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <torch/csrc/distributed/c10d/control_plane/Handlers.hpp>

#include "cohort/base/log/log.h"
#include "cohort/base/net/http_server.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/json_text.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/report/flight_recorder.h"

namespace cohort::comm {
namespace {

namespace control_plane = c10d::control_plane;
using base::Error;
using base::HttpRequest;
using base::HttpResponse;
using base::Result;

constexpr const char* kHandlerPath = "/handler/";

class Request : public control_plane::Request {
 public:
  explicit Request(const HttpRequest& request) : request_(request) {}
  const std::string& body() const override { return request_.body; }
  const std::multimap<std::string, std::string>& params() const override { return request_.parameters; }

 private:
  const HttpRequest& request_;
};

class Response : public control_plane::Response {
 public:
  void setContent(std::string&& content, const std::string& content_type) override {
    response_.body = std::move(content);
    response_.content_type = content_type;
  }
  void setStatus(int status) override { response_.status = status; }
  HttpResponse take() { return std::move(response_); }

 private:
  HttpResponse response_;
};

HttpResponse call_handler(const std::string& name, const HttpRequest& request) {
  control_plane::HandlerFunc handler;
  try {
    handler = control_plane::getHandler(name);
  } catch (const std::exception& error) {
    return {.status = 404, .body = fmt::format("Handler {} not found: {}", name, error.what())};
  }
  Response response;
  try {
    handler(Request(request), response);
  } catch (const std::exception& error) {
    return {.status = 500, .body = fmt::format("Handler {} failed: {}", name, error.what())};
  } catch (...) {
    return {.status = 500, .body = fmt::format("Handler {} failed with an unknown exception", name)};
  }
  return response.take();
}

HttpResponse answer(const HttpRequest& request) {
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (reads && request.path == "/") {
    return {.content_type = "text/html",
            .body = "<h1>cohort::comm::WorkerServer</h1>\n<a href=\"/handler/\">Handlers</a>\n"};
  }
  if (reads && request.path == kHandlerPath) {
    std::vector<std::string> names;
    for (const std::string& name : control_plane::getHandlerNames()) names.push_back(base::json_string(name));
    return {.content_type = "application/json", .body = fmt::format("[{}]", base::join(names, ","))};
  }
  if (request.method == "POST" && request.path.starts_with(kHandlerPath)) {
    return call_handler(request.path.substr(std::strlen(kHandlerPath)), request);
  }
  return {.status = 404};
}

Error cannot_listen(const std::string& path, const std::string& why) {
  return Error(fmt::format("cannot serve the control plane at \"{}\": {}", path, why));
}

bool somebody_listens(const sockaddr_un& address) {
  const base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return socket && ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

/// Removes a socket that an ended process has left.
Result<void> remove_former(const std::string& path, const sockaddr_un& address) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode)) return cannot_listen(path, "something else is there");
  if (somebody_listens(address)) {
    return cannot_listen(path, "another process listens there")
        .with_hint(
            "give each rank of a host a socket of its own: \"${rank}\" in TORCH_WORKER_SERVER_SOCKET stands for the "
            "rank");
  }
  ::unlink(path.c_str());
  return {};
}

Result<base::Fd> listen_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return cannot_listen(path, fmt::format("the path has {} bytes, and a socket's has 1 to {}", path.size(),
                                           sizeof address.sun_path - 1));
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  if (Result<void> removed = remove_former(path, address); !removed) return removed.error();
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // The mode of the unbound socket becomes the file's, so other users can never connect.
  if (!socket || ::fchmod(socket.get(), 0600) != 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return cannot_listen(path, base::errno_text(errno));
  }
  return socket;
}

std::string path_from_environment() {
  std::string path = base::get_env("TORCH_WORKER_SERVER_SOCKET").value_or("");
  path = base::replace_all(std::move(path), "${rank}", base::get_env("RANK").value_or("0"));
  return base::replace_all(std::move(path), "${local_rank}", base::get_env("LOCAL_RANK").value_or("0"));
}

}  // namespace

void register_worker_handlers() {
  const std::vector<std::string> names = control_plane::getHandlerNames();
  const auto add = [&](const char* name, const control_plane::HandlerFunc& handler) {
    if (std::find(names.begin(), names.end(), name) == names.end()) control_plane::registerHandler(name, handler);
  };
  add("cohort_fr_trace_json", [](const control_plane::Request&, control_plane::Response& response) {
    response.setContent(dump_flight_recorder(), "application/json");
  });
  add("cohort_fr_trace", [](const control_plane::Request&, control_plane::Response& response) {
    response.setContent(dump_flight_recorder_text(), "text/plain");
  });
}

struct WorkerServer::Service {
  std::string path;
  base::HttpServer server;
  /// Becomes readable when the thread must end.
  base::Fd stop;
  std::thread thread;

  void run() {
    ::pthread_setname_np(::pthread_self(), "cohort-server");
    for (;;) {
      pollfd entries[2] = {{server.fd(), POLLIN, 0}, {stop.get(), POLLIN, 0}};
      if (::poll(entries, 2, -1) < 0 && errno != EINTR) return;
      if (entries[1].revents != 0) return;
      if (entries[0].revents != 0) server.serve();
    }
  }

  void start() {
    // Only the program's own threads take signals.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread = std::thread([this] { run(); });
    } catch (...) {
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
      ::unlink(path.c_str());
      throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
};

WorkerServer::WorkerServer() {
  const std::string path = path_from_environment();
  if (path.empty()) return;
  WorkerServer server(path);
  service_ = std::move(server.service_);
}

WorkerServer::WorkerServer(const std::string& path) {
  register_worker_handlers();
  std::vector<base::Fd> listeners;
  listeners.push_back(or_throw(listen_at(path)));
  Result<base::HttpServer> server = base::HttpServer::create(std::move(listeners), answer);
  base::Fd stop(::eventfd(0, EFD_CLOEXEC));
  TORCH_CHECK(server.ok() && stop, "[cohort] cannot serve the control plane at \"", path,
              "\": no file descriptor is left for it");
  service_.reset(new Service{path, std::move(*server), std::move(stop), {}});
  service_->start();
  base::log_info(fmt::format("the control plane of this rank listens at {}", path));
}

WorkerServer::~WorkerServer() { shutdown(); }

std::string WorkerServer::path() const { return service_ ? service_->path : ""; }

void WorkerServer::shutdown() {
  if (!service_) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(service_->stop.get(), &one, sizeof one);
  service_->thread.join();
  ::unlink(service_->path.c_str());
  service_.reset();
}

}  // namespace cohort::comm
