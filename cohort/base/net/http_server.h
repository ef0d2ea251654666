/// A small HTTP/1.1 server for probes and diagnostics: one request per connection, limits on everything, and it never waits for a
/// client.
///
/// It has no thread of its own. The owner waits until fd() is readable and calls serve():
///
///     auto server = HttpServer::create(std::move(sockets), [](const HttpRequest&) { return HttpResponse{.body = "hello\n"}; });
///     while (poll(server->fd(), POLLIN)) server->serve();
///
/// A request may have 8 KiB of headers and 64 KiB of body. At most 16 connections are open at once; one more replaces the oldest,
/// so clients that send or read nothing block nobody.
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
  /// The path without the query.
  std::string path;
  QueryParameters parameters;
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain";
  std::string body;
};

/// The state of a partly received request. Status 0: more must come. 200: it is complete. Others: the answer to a malformed
/// request.
struct HttpProgress {
  int status = 0;
  HttpRequest request;
};
/// Parses the bytes received so far. Pure.
HttpProgress parse_http_request(std::string_view bytes);

/// Thread-safety: one thread at a time.
class HttpServer {
 public:
  /// Answers a request. serve() calls it; it must not throw, and other clients wait while it runs.
  using Handler = std::function<HttpResponse(const HttpRequest& request)>;

  /// Takes over listening, non-blocking sockets. The handler gets HEAD requests, too; the server leaves out the body of their
  /// answers.
  static Result<HttpServer> create(std::vector<Fd> listeners, Handler handler);
  HttpServer(HttpServer&& other) noexcept;
  ~HttpServer();

  /// Readable while serve() has something to do.
  int fd() const { return epoll_.get(); }
  /// Does all that it can without waiting.
  void serve();

 private:
  struct Connection;

  HttpServer() = default;
  void accept_from(int listener);
  /// Returns false when the connection is over.
  bool advance(Connection& connection);
  bool read_request(Connection& connection);
  bool send_answer(Connection& connection);
  void watch(int socket, bool for_writing);

  Fd epoll_;
  std::vector<Fd> listeners_;
  Handler handler_;
  /// The oldest connection first.
  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace cohort::base
