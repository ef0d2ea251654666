/// A small HTTP/1.1 server for probes and diagnostics: one request per connection, everything bounded, no wait for any client.
///
/// It has no thread. Whoever has one waits until fd() is readable and calls serve():
///
///     auto server = HttpServer::create(std::move(sockets), [](const HttpRequest&) { return HttpResponse{.body = "hello\n"}; });
///     while (poll(server->fd(), POLLIN)) server->serve();
///
/// A request has 8 KiB of head and 64 KiB of body at most. 16 connections are open at once; one more takes the place of the
/// oldest, so that clients that send nothing, or read nothing, keep nobody out.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"
#include "cohort/base/net/url.h"

namespace cohort::base {

struct HttpRequest {
  std::string method;
  /// Without the query.
  std::string path;
  QueryParameters parameters;
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain";
  std::string body;
};

/// What has arrived of a request so far. Status 0: more must come. 200: it is whole. Others: the answer to what is no request.
struct HttpProgress {
  int status = 0;
  HttpRequest request;
};
/// Pure.
HttpProgress parse_http_request(std::string_view bytes);

/// Thread-safety: one thread at a time.
class HttpServer {
 public:
  /// Is called by serve(), must not throw, and holds the other clients up while it runs.
  using Handler = std::function<HttpResponse(const HttpRequest& request)>;

  /// Takes over listening sockets, non-blocking ones. HEAD reaches the handler as such; its answer's body is left out.
  static Result<HttpServer> create(std::vector<Fd> listeners, Handler handler);
  HttpServer(HttpServer&& other) noexcept;
  ~HttpServer();

  /// Readable while there is something for serve() to do.
  int fd() const { return epoll_.get(); }
  /// Does what can be done without waiting.
  void serve();

 private:
  struct Connection;

  HttpServer() = default;
  void accept_from(int listener);
  /// False: the connection is over.
  bool advance(Connection& connection);
  bool read_request(Connection& connection);
  bool send_answer(Connection& connection);
  void watch(int socket, bool for_writing);

  Fd epoll_;
  std::vector<Fd> listeners_;
  Handler handler_;
  /// The oldest first.
  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace cohort::base
