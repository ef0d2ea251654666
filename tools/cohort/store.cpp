// cohort store: a store alone, for jobs whose rendezvous shall not hang on one of their nodes.
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <map>

#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/store/tcp_server.h"
#include "cohort/store/token.h"
#include "tools/cohort/commands.h"

namespace cohort::cli {
namespace {

int serve(const store::TcpServerOptions& options) {
  // Before the server's thread begins, so that it leaves them to us.
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
    base::log_debug("the store has no token: whoever reaches it may change every key");
  }
  const auto host = options.host.empty() ? "all interfaces" : options.host;
  (void)base::write_all(STDOUT_FILENO, fmt::format("store: listening on {}, port {}\n", host, (*server)->port()));
  int signal = 0;
  sigwait(&ends, &signal);
  return 0;
}

}  // namespace

int store_command(const std::vector<std::string>& arguments) {
  CLI::App app(
      "Runs a key-value store that Cohort's and PyTorch's processes meet at (c10d's TCPStore) until SIGINT or SIGTERM. "
      "Prints one line when it is ready. Keys under \"cohort/\" are only for processes with the store's token, if it "
      "has "
      "one: from --token-file, else from COHORT_TOKEN.",
      "cohort store");
  store::TcpServerOptions options;
  options.port = 29500;
  const std::map<std::string, store::Family> families{
      {"any", store::Family::kAny}, {"4", store::Family::kIPv4}, {"6", store::Family::kIPv6}};
  app.add_option("--host", options.host, "address or name to listen on (default: all interfaces)");
  app.add_option("--port", options.port, "port, 0 for a free one (default: 29500)")->check(CLI::Range(0, 65535));
  std::string token_file;
  app.add_option("--token-file", token_file,
                 "file with the token; none but its owner may read it (default: COHORT_TOKEN)");
  app.add_option("--ip-family", options.family, "any, 4 or 6 (default: any)")
      ->transform(CLI::CheckedTransformer(families));
  try {
    auto reversed = arguments;
    std::reverse(reversed.begin(), reversed.end());
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  const auto token = store::find_token(token_file);
  if (!token) {
    base::log_error(token.error().describe());
    return 1;
  }
  options.token = *token;
  return serve(options);
}

}  // namespace cohort::cli
