/// TlsStream: TLS over another stream, for a client. The server must prove that it is the requested host. Private to this folder.
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
  /// Reads the files. `host` is a name, or an address without brackets. Errors are about files that must be corrected.
  static base::Result<std::unique_ptr<TlsStream>> create(const std::string& host, const TlsOptions& options);
  ~TlsStream() override;

  /// Must be called once, before the other functions. After an error is_hopeless() says whether certificates are wrong, or TLS is
  /// missing.
  base::Result<void> shake_hands(std::unique_ptr<Stream> wire, Clock::time_point deadline);

  base::Result<void> send(std::string_view bytes, Clock::time_point deadline) override;
  base::Result<size_t> receive(char* buffer, size_t size, Clock::time_point deadline) override;
  bool is_hopeless() const override { return is_hopeless_; }

 private:
  TlsStream(std::string host, const TlsOptions& options) : host_(std::move(host)), options_(options) {}
  base::Result<void> begin();
  /// Calls a function of OpenSSL until it needs no more bytes from the wire; receives those bytes and sends those that it makes.
  /// Returns its result; 0 means that the server has closed the connection.
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
  /// Encrypted bytes that arrived, and those to be sent. They belong to ssl_.
  bio_st* inbox_ = nullptr;
  bio_st* outbox_ = nullptr;
  bool is_hopeless_ = false;
};

}  // namespace cohort::store
