/// EtcdServer: a real etcd on 127.0.0.1 with a folder of its own, for tests.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/net/port.h"
#include "cohort/base/process/process.h"
#include "cohort/store/etcd/etcd_client.h"
#include "tests/support/temporary_folder.h"

namespace cohort::store {

struct EtcdTls {
  /// The server's certificate and key; and the authority of its clients' certificates, if it asks for any.
  TlsOptions files;
  bool asks_for_certificates = false;
};

class EtcdServer {
 public:
  /// Whether it is installed; tests are skipped, with this reason, where it is not.
  static bool is_installed();
  static constexpr const char* kSkipReason = "etcd is not installed (Debian: etcd-server)";

  /// Answers when this returns; with TLS it listens. Throws std::runtime_error.
  explicit EtcdServer(std::optional<EtcdTls> tls = std::nullopt);
  int port() const { return client_port_.port; }
  /// As a power cut: SIGKILL. Its data stay.
  void stop() { process_.reset(); }
  void start();
  /// The number of keys of all jobs.
  long long num_keys() const;

 private:
  std::vector<std::string> command() const;
  EtcdClient::Options client_options() const;

  test::TemporaryFolder folder_;
  const std::optional<EtcdTls> tls_;
  const base::PortReservation client_port_;
  const base::PortReservation peer_port_;
  std::unique_ptr<base::Process> process_;
};

}  // namespace cohort::store
