// cohort store: runs only a store, for jobs whose rendezvous should not depend on one of their nodes.
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <map>

#include "cohort/base/file/file.h"
#include "cohort/base/log/log.h"
#include "cohort/base/net/address.h"
#include "cohort/base/text/text.h"
#include "cohort/store/tcp/tcp_server.h"
#include "cohort/store/tcp/token.h"
#include "tools/cohort/commands.h"
#include "tools/parse_problem.h"

namespace cohort::cli {
namespace {

int serve(const store::TcpServerOptions& options) {
  // Blocked before the server's thread starts, so that this thread receives them.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  const auto server = store::TcpServer::start(options);
  if (!server) {
    base::log_error(server.error().describe());
    return 1;
  }
  if (options.token.empty()) {
    base::log_debug("the store has no token: anyone who can reach it may change any key");
  }
  const auto host = options.host.empty() ? "all interfaces" : options.host;
  // A pipe that nobody reads must not delay signals.
  pthread_sigmask(SIG_UNBLOCK, &ends, nullptr);
  (void)base::write_all(STDOUT_FILENO, fmt::format("store: listening on {}, port {}\n", host, (*server)->port()));
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  int signal = 0;
  sigwait(&ends, &signal);
  return 0;
}

const std::map<std::string, base::IpFamily> kFamilies{
    {"any", base::IpFamily::kAny}, {"4", base::IpFamily::kV4}, {"6", base::IpFamily::kV6}};

// Returns what is wrong, or an empty text.
std::string port_problem(const std::string& text) {
  const auto number = base::parse_int(text);
  if (number && *number >= 0 && *number <= 65535) return {};
  return fmt::format("\"{}\" is not a port from 0 to 65535", text);
}

std::string family_problem(const std::string& text) {
  return kFamilies.count(text) ? "" : fmt::format("\"{}\" must be any, 4 or 6", text);
}

}  // namespace

int store_command(const std::vector<std::string>& arguments) {
  CLI::App app(
      "Runs a key-value store (c10d's TCPStore) where Cohort's and PyTorch's processes meet, until SIGINT or SIGTERM. "
      "Prints one line when it is ready. If the store has a token, from --token-file or otherwise from COHORT_TOKEN, "
      "only processes with the same token may use keys under \"cohort/\".",
      "cohort store");
  store::TcpServerOptions options;
  options.port = 29500;
  std::string family = "any";
  app.add_option("--host", options.host, "address or name to listen on (default: all interfaces)");
  app.add_option("--port", options.port, "port, 0 for a free one (default: 29500)")
      ->check(CLI::Validator(port_problem, ""));
  std::string token_file;
  app.add_option("--token-file", token_file,
                 "file with the token, which only its owner may read (default: COHORT_TOKEN)");
  app.add_option("--ip-family", family, "any, 4 or 6 (default: any)")->check(CLI::Validator(family_problem, ""));
  try {
    auto reversed = arguments;
    std::reverse(reversed.begin(), reversed.end());
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    base::log_error(parse_problem(app, error) + "\n  hint: cohort store --help lists the flags");
    return kUsageError;
  }
  options.family = kFamilies.at(family);
  const auto token = store::find_token(token_file);
  if (!token) {
    base::log_error(token.error().describe());
    return 1;
  }
  options.token = *token;
  return serve(options);
}

}  // namespace cohort::cli
