#include "cohort/store/tls/tls_stream.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <optional>

#include "cohort/base/text/text.h"
#include "cohort/store/tls/certificate_problem.h"
#include "cohort/store/tls/openssl.h"

namespace cohort::store {
namespace {

using base::Error;
using base::Result;

bool is_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> address;
  return inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), address.data()) == 1;
}

// Alerts that answer our certificate, or a missing one. Servers use different alerts for this.
bool is_about_our_certificate(int reason) {
  switch (reason) {
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return true;
    default:
      return false;
  }
}

}  // namespace

Result<std::unique_ptr<TlsStream>> TlsStream::create(const std::string& host, const TlsOptions& options) {
  std::unique_ptr<TlsStream> stream(new TlsStream(host, options));
  if (auto begun = stream->begin(); !begun) return begun.error();
  return stream;
}

TlsStream::~TlsStream() { SSL_free(ssl_); }

Result<void> TlsStream::begin() {
  auto context = make_tls_context(options_);
  if (!context) return context.error();
  context_ = std::move(*context);
  ssl_ = SSL_new(context_.get());
  inbox_ = BIO_new(BIO_s_mem());
  outbox_ = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl_, inbox_, outbox_);
  // Only names in subjectAltName count; certificates have names nowhere else any more.
  SSL_set_hostflags(ssl_, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  const bool is_set =
      is_address(host_) ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_), host_.c_str()) == 1
                        : SSL_set1_host(ssl_, host_.c_str()) == 1 && SSL_set_tlsext_host_name(ssl_, host_.c_str()) == 1;
  if (!is_set) return Error("cannot begin with TLS: " + openssl_error());
  SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);
  return {};
}

Result<void> TlsStream::shake_hands(std::unique_ptr<Stream> wire, Clock::time_point deadline) {
  wire_ = std::move(wire);
  // The problem is recorded while OpenSSL has the certificate that it is about.
  std::optional<Error> distrust;
  struct Watcher {
    const TlsStream* stream;
    std::optional<Error>* distrust;
  } watcher{this, &distrust};
  SSL_set_app_data(ssl_, &watcher);
  SSL_set_verify(ssl_, SSL_VERIFY_PEER, [](int is_right, X509_STORE_CTX* chain) {
    const auto* const ssl = X509_STORE_CTX_get_ex_data(chain, SSL_get_ex_data_X509_STORE_CTX_idx());
    const auto* const watcher = static_cast<Watcher*>(SSL_get_app_data(static_cast<const SSL*>(ssl)));
    if (!is_right && !*watcher->distrust) {
      *watcher->distrust = certificate_problem(X509_STORE_CTX_get_error(chain), X509_STORE_CTX_get_error_depth(chain),
                                               X509_STORE_CTX_get_current_cert(chain), watcher->stream->host_,
                                               watcher->stream->options_);
    }
    return is_right;
  });
  const auto done = run([this] { return SSL_connect(ssl_); }, deadline);
  SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);
  SSL_set_app_data(ssl_, nullptr);
  if (distrust) return hopeless(std::move(*distrust));
  if (!done) return done.error();
  if (*done > 0) return {};
  return Error("it has closed the connection instead of answering in TLS: perhaps it has none");
}

Result<void> TlsStream::send(std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const auto size = static_cast<int>(std::min<size_t>(bytes.size(), 1 << 20));
    const auto sent = run([&] { return SSL_write(ssl_, bytes.data(), size); }, deadline);
    if (!sent) return sent.error();
    if (*sent == 0) return Error("it has closed the connection");
    bytes.remove_prefix(static_cast<size_t>(*sent));
  }
  return {};
}

Result<size_t> TlsStream::receive(char* buffer, size_t size, Clock::time_point deadline) {
  const auto wanted = static_cast<int>(std::min<size_t>(size, 1 << 20));
  const auto received = run([&] { return SSL_read(ssl_, buffer, wanted); }, deadline);
  if (!received) return received.error();
  return static_cast<size_t>(*received);
}

Result<int> TlsStream::run(const std::function<int()>& step, Clock::time_point deadline) {
  while (true) {
    ERR_clear_error();
    const int result = step();
    const int problem = SSL_get_error(ssl_, result);
    const auto failure = problem == SSL_ERROR_SSL ? std::optional(explain()) : std::nullopt;
    const auto sent = empty_outbox(deadline);
    if (failure) return *failure;
    if (!sent) return last_words(sent.error());
    if (result > 0) return result;
    if (problem == SSL_ERROR_ZERO_RETURN) return 0;
    if (problem != SSL_ERROR_WANT_READ) return Error("TLS has failed: " + openssl_error());
    const auto filled = fill_inbox(deadline);
    if (!filled) return filled.error();
    if (*filled == 0) return 0;
  }
}

Result<void> TlsStream::empty_outbox(Clock::time_point deadline) {
  char* bytes = nullptr;
  const auto size = BIO_get_mem_data(outbox_, &bytes);
  if (size <= 0) return {};
  auto sent = wire_->send({bytes, static_cast<size_t>(size)}, deadline);
  BIO_reset(outbox_);
  return sent;
}

Result<size_t> TlsStream::fill_inbox(Clock::time_point deadline) {
  std::array<char, 16 * 1024> piece;
  const auto size = wire_->receive(piece.data(), piece.size(), deadline);
  if (size && *size > 0) BIO_write(inbox_, piece.data(), static_cast<int>(*size));
  return size;
}

Error TlsStream::hopeless(Error error) {
  is_hopeless_ = true;
  return error;
}

// Explains SSL_ERROR_SSL.
Error TlsStream::explain() {
  const int reason = ERR_GET_REASON(ERR_peek_error());
  const auto text = openssl_error();
  if (is_about_our_certificate(reason)) return explain_alert(text);
  if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_PACKET_LENGTH_TOO_LONG) {
    return hopeless(Error("it does not speak TLS")
                        .with_hint("leave out --rdzv-conf protocol=https, or give etcd an https:// URL to listen on"));
  }
  return Error("TLS has failed: " + text);
}

Error TlsStream::explain_alert(const std::string& alert) {
  if (options_.certificate_file.empty()) {
    return hopeless(Error(fmt::format("it takes only clients with a certificate, and none was given ({})", alert))
                        .with_hint("give --rdzv-conf cert=FILE,key=FILE"));
  }
  return hopeless(
      Error(fmt::format("it does not take the certificate in \"{}\" ({})", options_.certificate_file, alert))
          .with_hint("give one that an authority in etcd's --trusted-ca-file has signed, and that has not expired"));
}

// Reads what the server sent before it closed the connection: it may say why.
Error TlsStream::last_words(Error lost) {
  char byte;
  while (true) {
    const auto filled = fill_inbox(Clock::now());
    if (!filled || *filled == 0) return lost;
    ERR_clear_error();
    const int result = SSL_read(ssl_, &byte, 1);
    const int problem = SSL_get_error(ssl_, result);
    if (problem == SSL_ERROR_SSL) return explain();
    if (problem != SSL_ERROR_WANT_READ) return lost;
  }
}

}  // namespace cohort::store
