// EtcdStore over TLS: with a real etcd, and what is said of each way in which files and certificates can be wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <limits>
#include <stop_token>
#include <thread>

#include "cohort/base/text/text.h"
#include "cohort/store/etcd/etcd_store.h"
#include "cohort/store/stream/socket.h"
#include "cohort/store/tls/tls_context.h"
#include "tests/store/certificates.h"
#include "tests/store/etcd_server.h"
#include "tests/store/times.h"

namespace cohort::store {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

constexpr const char* kHere = "IP:127.0.0.1,DNS:localhost";

class EtcdTlsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (Certificates::is_installed()) ours = std::make_unique<Certificates>("ours");
  }
  static void TearDownTestSuite() { ours.reset(); }
  void SetUp() override {
    if (!EtcdServer::is_installed()) GTEST_SKIP() << EtcdServer::kSkipReason;
    if (!ours) GTEST_SKIP() << Certificates::kSkipReason;
  }

  static EtcdStoreOptions options(const EtcdServer& etcd, const TlsOptions& tls,
                                  const std::string& host = "127.0.0.1") {
    return {
        .host = host, .port = etcd.port(), .job = "job", .timeout = kHangLimit, .retry_time = kHangLimit, .tls = tls};
  }
  static std::unique_ptr<EtcdStore> connect(const EtcdStoreOptions& options) {
    auto store = EtcdStore::connect(options);
    if (!store) throw std::runtime_error(store.error().describe());
    return std::move(*store);
  }
  /// What is said of options that cannot work; without the line that stands above each of it, and with names for what differs.
  static std::string error_of(const EtcdStoreOptions& options) {
    const auto store = EtcdStore::connect(options);
    if (store) return "none";
    EXPECT_TRUE(is_tls_hopeless(store.error())) << store.error().describe();
    auto text = base::replace_all(store.error().describe(), *ours / "", "");
    const auto above = "cannot open the store in etcd\n  caused by: cannot speak TLS with etcd on " + options.host +
                       ":" + std::to_string(options.port) + "\n  caused by: ";
    EXPECT_THAT(text, testing::StartsWith(above));
    return base::replace_all(text, above, "");
  }

  inline static std::unique_ptr<Certificates> ours;
};

TEST_F(EtcdTlsTest, ClientsWithACertificateAreServedAlsoAfterARestart) {
  const auto files = ours->add("served", kHere);
  EtcdServer etcd(EtcdTls{.files = files, .asks_for_certificates = true});
  const auto store = connect(options(etcd, files, "https://localhost"));
  const std::string value(300'000, 'x');  // many records
  ASSERT_TRUE(store->set("k", value).ok());
  EXPECT_EQ(*store->get("k"), value);
  const auto clone = store->clone().value();
  EXPECT_EQ(*clone->add("n", 2), 2);
  etcd.stop();
  etcd.start();
  EXPECT_EQ(*store->add("n", 3), 5);
  EXPECT_EQ(*clone->get("n"), "5");
  ASSERT_TRUE(store->remove_all().ok());
}

TEST_F(EtcdTlsTest, ACertificateMayBeRenewedWhileAJobRunsMessage) {
  const auto files = ours->add("renewed", kHere);
  EtcdServer etcd(EtcdTls{.files = files});
  auto impatient = options(etcd, files);
  impatient.retry_time = 30 * kAWhile;  // a server that has begun to listen may not answer yet
  const auto store = connect(options(etcd, files));
  const auto hasty = connect(impatient);
  ASSERT_TRUE(store->set("k", "1").ok());
  ASSERT_TRUE(hasty->set("k", "1").ok());
  etcd.stop();
  ours->add("renewed", kHere, -1);
  etcd.start();
  // Not the end: it was right before, and may be so again.
  const auto late = hasty->set("k", "2");
  ASSERT_FALSE(late.ok());
  EXPECT_FALSE(is_tls_hopeless(late.error()));
  EXPECT_THAT(late.error().describe(),
              HasSubstr("gave no answer for 3.0 s\n  caused by: its certificate has expired on"));
  etcd.stop();
  ours->add("renewed", kHere);
  etcd.start();
  EXPECT_TRUE(store->set("k", "3").ok());
}

TEST_F(EtcdTlsTest, AServerThatSaysNothingMessage) {
  const auto silent = std::move(listen_on("127.0.0.1", 0).value().front());
  EtcdStoreOptions impatient{.port = silent.port, .job = "job", .retry_time = 10 * kAWhile, .tls = TlsOptions{}};
  EXPECT_THAT(EtcdStore::connect(impatient).error().describe(),
              HasSubstr("gave no answer for 1.0 s\n  caused by: it gave no answer in time\n"));
}

/// Closes the first `num_resets` connections without having read what was sent: the kernel tells the client of a reset. To later
/// ones it says nothing.
class ResettingServer {
 public:
  explicit ResettingServer(int num_resets) : num_resets_(num_resets) {}
  int port() const { return listener_.port; }

 private:
  void serve(const std::stop_token& stop) const {
    constexpr int kMilliseconds = 20;
    for (int i = 0; i < num_resets_ && !stop.stop_requested();) {
      pollfd listening{listener_.socket.get(), POLLIN, 0};
      if (poll(&listening, 1, kMilliseconds) <= 0) continue;
      const base::Fd connection(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      pollfd sent{connection.get(), POLLIN, 0};
      while (poll(&sent, 1, kMilliseconds) == 0 && !stop.stop_requested()) {
      }
      ++i;
    }
  }

  const int num_resets_;
  Listener listener_ = std::move(listen_on("127.0.0.1", 0).value().front());
  std::jthread thread_{[this](const std::stop_token& stop) { serve(stop); }};
};

TEST(EtcdTlsReset, IsToldLikeAClosedConnectionMessage) {
  const ResettingServer server(std::numeric_limits<int>::max());
  EtcdStoreOptions impatient{.port = server.port(), .job = "job", .retry_time = 10 * kAWhile};
  EXPECT_THAT(EtcdStore::connect(impatient).error().describe(),
              HasSubstr("caused by: it has closed the connection without an answer: perhaps it wants TLS\n"));
  impatient.tls = TlsOptions{};
  EXPECT_THAT(EtcdStore::connect(impatient).error().describe(),
              HasSubstr("caused by: it has closed the connection instead of answering in TLS: perhaps it has none\n"));
}

TEST(EtcdTlsReset, IsToldThoughTheLastAttemptWasCutShortMessage) {
  const ResettingServer server(1);
  const EtcdStoreOptions impatient{.port = server.port(), .job = "job", .retry_time = 10 * kAWhile};
  EXPECT_THAT(EtcdStore::connect(impatient).error().describe(),
              HasSubstr("gave no answer for 1.0 s\n  caused by: it has closed the connection without an answer"));
}

TEST_F(EtcdTlsTest, CertificateAndKeyMayBeInOneFile) {
  const auto files = ours->add("one", kHere);
  const EtcdServer etcd(EtcdTls{.files = files, .asks_for_certificates = true});
  const auto both =
      ours->write("both.pem", *base::read_file(files.certificate_file) + *base::read_file(files.key_file));
  EXPECT_TRUE(connect(options(etcd, {.ca_file = files.ca_file, .certificate_file = both}))->set("k", "1").ok());
}

TEST_F(EtcdTlsTest, AServerThatCannotBeTrustedMessage) {
  const auto files = ours->add("trusted", kHere);
  const EtcdServer etcd(EtcdTls{.files = files});
  EXPECT_EQ(
      error_of(options(etcd, {})),
      "its certificate is signed by \"Authority of ours\", which this system's list of authorities does not hold\n"
      "  hint: give the certificate of that authority: --rdzv-conf cacert=FILE");
  const Certificates others("others");
  EXPECT_EQ(error_of(options(etcd, {.ca_file = others.ca_file()})),
            "its certificate is signed by \"Authority of ours\", which the CA file \"" + others.ca_file() +
                "\" does not hold\n"
                "  hint: give the certificate of that authority: --rdzv-conf cacert=FILE");
  const EtcdServer elsewhere(EtcdTls{.files = ours->add("elsewhere", "DNS:etcd1.example,IP:10.0.0.1")});
  for (const auto* host : {"127.0.0.1", "localhost"}) {
    EXPECT_EQ(error_of(options(elsewhere, files, host)),
              std::string("its certificate is for etcd1.example, 10.0.0.1, not for ") + host +
                  "\n  hint: name the server as its certificate does, or give it a certificate for this name "
                  "(subjectAltName)");
  }
  const EtcdServer expired(EtcdTls{.files = ours->add("expired", kHere, -1)});
  EXPECT_THAT(error_of(options(expired, files)),
              MatchesRegex("its certificate has expired on [A-Z][a-z][a-z] [ 0-9][0-9] [0-9:]+ [0-9]+ GMT\n"
                           "  hint: renew it there, or set the clock of this host"));
}

TEST_F(EtcdTlsTest, AServerThatWantsAnotherCertificateMessage) {
  const auto files = ours->add("asking", kHere);
  const EtcdServer etcd(EtcdTls{.files = files, .asks_for_certificates = true});
  EXPECT_THAT(error_of(options(etcd, {.ca_file = files.ca_file})),
              MatchesRegex("it takes only clients with a certificate, and none was given \\(.*alert.*\\)\n"
                           "  hint: give --rdzv-conf cert=FILE,key=FILE"));
  const Certificates others("others");
  auto foreign = others.add("foreign", kHere);
  foreign.ca_file = files.ca_file;
  EXPECT_THAT(
      error_of(options(etcd, foreign)),
      MatchesRegex(
          "it does not take the certificate in \"" + foreign.certificate_file + "\" \\(.*alert.*\\)\n" +
          "  hint: give one that an authority in etcd's --trusted-ca-file has signed, and that has not expired"));
}

// What a connection fails with. A busy server may need more than the first time to close it.
void expect_reason(EtcdStoreOptions options, const std::string& reason) {
  std::string text;
  for (const int factor : {3, 30}) {
    options.retry_time = factor * kAWhile;
    text = EtcdStore::connect(options).error().describe();
    if (text.find("it gave no answer in time") == std::string::npos) break;
  }
  EXPECT_THAT(
      text, HasSubstr("gave no answer for " + base::format_duration(options.retry_time) + "\n  caused by: " + reason));
}

TEST_F(EtcdTlsTest, OneSideWithoutTlsMessage) {
  const auto files = ours->add("mixed", kHere);
  const EtcdServer safe(EtcdTls{.files = files});
  auto plainly = options(safe, {});
  plainly.tls.reset();
  expect_reason(plainly, "it has closed the connection without an answer: perhaps it wants TLS\n");
  const EtcdServer plain;
  expect_reason(options(plain, files),
                "it has closed the connection instead of answering in TLS: perhaps it has none\n");
}

TEST_F(EtcdTlsTest, FilesThatCannotBeUsedMessage) {
  const auto files = ours->add("files", kHere);
  const EtcdServer etcd(EtcdTls{.files = files});
  const auto error_with = [&](const std::string& ca, const std::string& certificate, const std::string& key) {
    const auto path = [](const std::string& name) { return name.empty() ? name : *ours / name; };
    return error_of(options(etcd, {path(ca), path(certificate), path(key)}));
  };
  ours->write("text", "no certificate\n");
  ours->run({"pkey", "-in", files.key_file, "-aes128", "-passout", "pass:secret", "-out", *ours / "locked"});
  ours->run({"genrsa", "-out", *ours / "other_kind"});
  EXPECT_EQ(error_with("none", "", ""), "cannot open the CA file \"none\": No such file or directory (ENOENT)");
  EXPECT_EQ(error_with(".", "", ""), "the CA file \".\" is not a regular file");
  EXPECT_EQ(error_with("text", "", ""), "the CA file \"text\" holds no certificate in PEM form");
  ours->write("damaged", "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n");
  EXPECT_EQ(error_with("ca.pem", "damaged", "files.key"),
            "the certificate file \"damaged\" holds no certificate that can be used: bad base64 decode");
  EXPECT_EQ(error_with("ca.pem", "none", "files.key"),
            "cannot open the certificate file \"none\": No such file or directory (ENOENT)");
  EXPECT_EQ(error_with("ca.pem", "text", "files.key"),
            "the certificate file \"text\" holds no certificate in PEM form");
  EXPECT_EQ(error_with("ca.pem", "files.pem", "none"),
            "cannot open the key file \"none\": No such file or directory (ENOENT)");
  EXPECT_EQ(error_with("ca.pem", "files.pem", ""), "the key file \"files.pem\" holds no private key in PEM form");
  for (const auto* key : {"ca.key", "other_kind"}) {
    EXPECT_EQ(error_with("ca.pem", "files.pem", key),
              std::string("the key in \"") + key + "\" does not belong to the certificate in \"files.pem\"");
  }
  EXPECT_EQ(error_with("ca.pem", "files.pem", "locked"),
            "the key file \"locked\" is locked with a passphrase\n  hint: give a key without one, in a file that its "
            "owner alone can read: openssl pkey -in KEY -out NEW_KEY");
}

TEST_F(EtcdTlsTest, AKeyThatEverybodyCanReadMessage) {
  const auto path = ours->write("key", "");
  chmod(path.c_str(), 0640);  // a group may be meant to
  EXPECT_EQ(doubt_about_key({.key_file = path}), "");
  chmod(path.c_str(), 0644);
  const auto doubt =
      "the key file \"" + path + "\" can be read or written by every user of this host: chmod 600 " + path;
  EXPECT_EQ(doubt_about_key({.key_file = path}), doubt);
  EXPECT_EQ(doubt_about_key({.certificate_file = path}), doubt);
  EXPECT_EQ(doubt_about_key({}), "");
}

}  // namespace
}  // namespace cohort::store
