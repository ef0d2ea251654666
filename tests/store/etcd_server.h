/// EtcdServer: a real etcd on 127.0.0.1 with a folder of its own, for tests.
#pragma once

#include <memory>
#include <string>

#include "cohort/base/port.h"
#include "cohort/base/process.h"
#include "tests/support/temporary_folder.h"

namespace cohort::store {

class EtcdServer {
 public:
  /// Whether it is installed; tests are skipped, with this reason, where it is not.
  static bool is_installed();
  static constexpr const char* kSkipReason = "etcd is not installed (Debian: etcd-server)";

  /// Answers when this returns. Throws std::runtime_error.
  EtcdServer();
  int port() const { return client_port_.port; }
  /// As a power cut: SIGKILL. Its data stay.
  void stop() { process_.reset(); }
  void start();
  /// The number of keys of all jobs.
  long long num_keys() const;

 private:
  test::TemporaryFolder folder_;
  const base::PortReservation client_port_;
  const base::PortReservation peer_port_;
  std::unique_ptr<base::Process> process_;
};

}  // namespace cohort::store
