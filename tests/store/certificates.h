/// Certificates: an authority and what it has signed, made by the program openssl, for tests.
#pragma once

#include <string>
#include <vector>

#include "cohort/store/tls/tls_options.h"
#include "tests/support/temporary_folder.h"

namespace cohort::store {

class Certificates {
 public:
  /// Whether openssl is installed; tests are skipped, with this reason, where it is not.
  static bool is_installed();
  static constexpr const char* kSkipReason = "openssl is not installed (Debian: openssl)";

  /// An authority named "Authority of NAME". Throws std::runtime_error, as the others do.
  explicit Certificates(const std::string& name);

  std::string ca_file() const { return folder_ / "ca.pem"; }
  /// NAME.pem and NAME.key, signed by the authority, for some names: "DNS:localhost,IP:127.0.0.1"; for `num_days` from now on.
  TlsOptions add(const std::string& name, const std::string& names, int num_days = 2) const;
  /// The path of a file with this text, for its owner alone.
  std::string write(const std::string& name, const std::string& text) const;
  /// Runs openssl with these arguments.
  void run(std::vector<std::string> arguments) const;
  std::string operator/(const std::string& name) const { return folder_ / name; }

 private:
  test::TemporaryFolder folder_;
};

}  // namespace cohort::store
