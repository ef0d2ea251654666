/// TlsStream: TLS over another stream, as a client. The server must prove that it is the host that was asked for. Private to
/// this folder.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cohort/store/stream/stream.h"
#include "cohort/store/tls/tls_context.h"

struct ssl_st;
struct bio_st;

namespace cohort::store {

class TlsStream final : public Stream {
 public:
  /// Reads the files. `host`: a name, or an address without brackets. Errors are of files that have to be put right.
  static base::Result<std::unique_ptr<TlsStream>> create(const std::string& host, const TlsOptions& options);
  ~TlsStream() override;

  /// To be called once, before the others. is_hopeless() after an error: certificates are wrong, or there is no TLS.
  base::Result<void> shake_hands(std::unique_ptr<Stream> wire, Clock::time_point deadline);

  base::Result<void> send(std::string_view bytes, Clock::time_point deadline) override;
  base::Result<size_t> receive(char* buffer, size_t size, Clock::time_point deadline) override;
  bool is_hopeless() const override { return is_hopeless_; }

 private:
  TlsStream(std::string host, const TlsOptions& options) : host_(std::move(host)), options_(options) {}
  base::Result<void> begin();
  /// Calls a function of OpenSSL until it needs no more bytes from the wire, which it gets, and sends those it made. Returns
  /// its result; 0: the server has closed the connection.
  base::Result<int> run(const std::function<int()>& step, Clock::time_point deadline);
  base::Result<void> empty_outbox(Clock::time_point deadline);
  base::Result<size_t> fill_inbox(Clock::time_point deadline);
  base::Error hopeless(base::Error error);
  base::Error explain();
  base::Error explain_alert(const std::string& alert);
  base::Error last_words(base::Error lost);

  const std::string host_;
  const TlsOptions options_;
  std::unique_ptr<Stream> wire_;
  TlsContext context_;
  ssl_st* ssl_ = nullptr;
  /// Encrypted bytes that came and that are to go. Belong to ssl_.
  bio_st* inbox_ = nullptr;
  bio_st* outbox_ = nullptr;
  bool is_hopeless_ = false;
};

}  // namespace cohort::store
