#include "tests/store/certificates.h"

#include <sys/stat.h>

#include <fstream>
#include <stdexcept>

#include "cohort/base/process/process.h"
#include "tests/store/times.h"

namespace cohort::store {

bool Certificates::is_installed() { return base::find_program("openssl").ok(); }

Certificates::Certificates(const std::string& name) {
  run({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
       "/CN=Authority of " + name, "-keyout", folder_ / "ca.key", "-out", ca_file()});
}

TlsOptions Certificates::add(const std::string& name, const std::string& names, int num_days) const {
  const TlsOptions files{
      .ca_file = ca_file(), .certificate_file = folder_ / (name + ".pem"), .key_file = folder_ / (name + ".key")};
  const auto request = folder_ / (name + ".csr");
  run({"req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=" + name, "-addext",
       "subjectAltName=" + names, "-keyout", files.key_file, "-out", request});
  run({"x509", "-req", "-in", request, "-CA", ca_file(), "-CAkey", folder_ / "ca.key", "-CAcreateserial",
       "-copy_extensions", "copy", "-days", std::to_string(num_days), "-out", files.certificate_file});
  return files;
}

std::string Certificates::write(const std::string& name, const std::string& text) const {
  const auto path = folder_ / name;
  std::ofstream(path) << text;
  chmod(path.c_str(), 0600);
  return path;
}

void Certificates::run(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), "openssl");
  const auto log = folder_ / "log";
  auto process = base::Process::start(
      {.arguments = arguments, .standard_output = base::Stream::null(), .standard_error = base::Stream::file(log)});
  if (!process) throw std::runtime_error(process.error().describe());
  const auto status = process->wait_for(kHangLimit);
  if (status && status->ok()) return;
  const auto text = base::read_file(log);
  throw std::runtime_error("openssl " + arguments[1] + " fails: " + (text ? *text : std::string()));
}

}  // namespace cohort::store
