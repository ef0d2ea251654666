// One node of a rendezvous. Arguments are torchrun's, as --nnodes=2; orders come by stdin, events go to stdout, a line each:
//
//     success | fail WHY | end WHY | next | leave WHY          report_success, report_failure (with and without restart), ...
//     round 0 restart 0 rank 1 of 2 store 127.0.0.1:40321 nodes node-a@10.77.0.1 node-b@10.77.0.2
//     over finished by -1 ends: every worker has ended with 0
//
// Ends with 0 after an event that ends the job, with 1 after an error, whose lines go to stdout as "error: ...", and when
// stdin ends.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <variant>

#include "cohort/base/text/text.h"
#include "cohort/rendezvous/rendezvous.h"

namespace {

using namespace cohort;
using rendezvous::Round;
using rendezvous::RoundOver;

bool take_flag(const std::string& argument, rendezvous::Flags* flags, rendezvous::Settings* settings) {
  const auto equals = argument.find('=');
  const auto name = argument.substr(0, equals);
  const auto value = equals == std::string::npos ? std::string() : argument.substr(equals + 1);
  if (name == "--nnodes")
    flags->num_nodes = value;
  else if (name == "--rdzv-backend")
    flags->backend = value;
  else if (name == "--rdzv-endpoint")
    flags->endpoint = value;
  else if (name == "--rdzv-id")
    flags->run_id = value;
  else if (name == "--rdzv-conf")
    flags->conf = value;
  else if (name == "--node-rank")
    flags->node_rank = std::stoi(value);
  else if (name == "--master-addr")
    flags->master_address = value;
  else if (name == "--master-port")
    flags->master_port = std::stoi(value);
  else if (name == "--local-addr")
    settings->local_address = value;
  else if (name == "--max-restarts")
    settings->max_restarts = std::stoi(value);
  else
    return false;
  return true;
}

void say(const std::string& line) { std::cout << line << "\n" << std::flush; }

// Returns: the exit code, or -1 while there is more to come.
int show(const rendezvous::Event& event) {
  static const char* const kReasons[] = {"finished",  "worker-failed", "nodes-waiting",
                                         "node-left", "node-lost",     "closed"};
  if (const auto* error = std::get_if<base::Error>(&event)) {
    say("error: " + error->describe());
    return 1;
  }
  if (const auto* over = std::get_if<RoundOver>(&event)) {
    say(fmt::format("over {} by {}{}: {}", kReasons[static_cast<size_t>(over->reason)], over->node_rank,
                    over->job_ends ? " ends" : "", over->why));
    return over->job_ends ? 0 : -1;
  }
  const auto& round = std::get<Round>(event);
  auto line = fmt::format("round {} restart {} rank {} of {} store {}:{} nodes", round.number, round.restart_count,
                          round.node_rank, round.nodes.size(), round.store_address, round.store_port);
  for (const auto& node : round.nodes) line += " " + node.host + "@" + node.address;
  say(line);
  return -1;
}

void obey(const std::string& line, rendezvous::Rendezvous& node) {
  const auto space = line.find(' ');
  const auto order = line.substr(0, space);
  const auto rest = space == std::string::npos ? std::string() : line.substr(space + 1);
  if (order == "success") node.report_success();
  if (order == "fail" || order == "end") node.report_failure(rest, order == "fail");
  if (order == "next") node.join_next();
  if (order == "leave") node.leave(rest);
}

int run(rendezvous::Rendezvous& node) {
  std::string orders;
  while (true) {
    while (auto event = node.next_event()) {
      const int code = show(*event);
      if (code >= 0) return code;
    }
    pollfd fds[] = {{node.fd(), POLLIN, 0}, {0, POLLIN, 0}};
    poll(fds, 2, -1);
    if (fds[1].revents == 0) continue;
    char bytes[4096];
    const auto size = read(0, bytes, sizeof(bytes));
    if (size <= 0) return 1;
    orders.append(bytes, static_cast<size_t>(size));
    for (auto end = orders.find('\n'); end != std::string::npos; end = orders.find('\n')) {
      obey(orders.substr(0, end), node);
      orders.erase(0, end + 1);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  rendezvous::Flags flags;
  rendezvous::Settings given;
  for (int i = 1; i < argc; ++i) {
    if (take_flag(argv[i], &flags, &given)) continue;
    std::cerr << "unknown flag " << argv[i] << "\n";
    return 2;
  }
  const auto settings = rendezvous::parse_settings(flags, given);
  auto node = settings ? rendezvous::Rendezvous::start(*settings)
                       : base::Result<std::unique_ptr<rendezvous::Rendezvous>>(settings.error());
  if (!node) {
    say("error: " + node.error().describe());
    return 1;
  }
  return run(**node);
}
