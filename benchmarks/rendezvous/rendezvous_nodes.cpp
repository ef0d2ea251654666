// The nodes of `cohort-bench rendezvous`: many in this process, each with its own threads and connections, and one store in a
// separate process. Arguments: rank, the pipe that commands come from, init method (as for every rank of a team). "meet N"
// answers with the milliseconds from the start of N nodes to the round with all of them, and from a node's failure to the next
// round.
#include <poll.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cohort/base/process/process.h"
#include "cohort/base/text/text.h"
#include "cohort/rendezvous/rendezvous.h"

namespace {

using namespace cohort;
using rendezvous::Rendezvous;
using Clock = std::chrono::steady_clock;
using Nodes = std::vector<std::unique_ptr<Rendezvous>>;

constexpr auto kHang = std::chrono::seconds(120);

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

class StoreProcess {
 public:
  explicit StoreProcess(const std::string& cohort)
      : process_(base::Process::start({.arguments = {cohort, "store", "--host=127.0.0.1", "--port=0"},
                                       .standard_output = base::Stream::pipe()})
                     .value()) {
    std::FILE* lines = fdopen(process_.standard_output().get(), "r");
    if (std::fscanf(lines, "store: listening on 127.0.0.1, port %d", &port_) != 1) throw std::runtime_error("no store");
  }
  int port() const { return port_; }

 private:
  base::Process process_;
  int port_ = 0;
};

rendezvous::Event next_event(Rendezvous& node) {
  const auto deadline = Clock::now() + kHang;
  while (Clock::now() < deadline) {
    if (auto event = node.next_event()) return std::move(*event);
    pollfd fd{node.fd(), POLLIN, 0};
    poll(&fd, 1, 1000);
  }
  throw std::runtime_error("a node gave up waiting");
}

void await_round(Nodes& nodes) {
  std::vector<bool> ranks(nodes.size(), false);
  for (const auto& node : nodes) {
    const auto event = next_event(*node);
    if (const auto* error = std::get_if<base::Error>(&event)) throw std::runtime_error(error->describe());
    const auto& round = std::get<rendezvous::Round>(event);
    if (round.nodes.size() != nodes.size()) throw std::runtime_error("a round lacks nodes");
    ranks.at(static_cast<size_t>(round.node_rank)) = true;
  }
  for (const bool is_there : ranks) {
    if (!is_there) throw std::runtime_error("two nodes have the same rank");
  }
}

void await_end(Nodes& nodes) {
  for (const auto& node : nodes) {
    const auto event = next_event(*node);
    if (const auto* error = std::get_if<base::Error>(&event)) throw std::runtime_error(error->describe());
    (void)std::get<rendezvous::RoundOver>(event);
  }
}

std::string meet(int num_nodes, int port, int number) {
  rendezvous::Flags flags;
  flags.num_nodes = std::to_string(num_nodes);
  flags.backend = "c10d";
  flags.endpoint = "127.0.0.1:" + std::to_string(port);
  flags.run_id = "meeting" + std::to_string(number);
  flags.conf = "is_host=0";
  const auto settings = rendezvous::parse_settings(flags, {.max_restarts = 1}).value();
  Nodes nodes;
  const auto begin = Clock::now();
  for (int i = 0; i < num_nodes; ++i) nodes.push_back(Rendezvous::start(settings).value());
  await_round(nodes);
  const double met = milliseconds_since(begin);

  const auto failed_at = Clock::now();
  nodes.back()->report_failure("it failed", true);
  await_end(nodes);
  for (const auto& node : nodes) node->join_next();
  await_round(nodes);
  const double restarted = milliseconds_since(failed_at);

  for (const auto& node : nodes) node->report_success();
  await_end(nodes);
  return std::to_string(met) + " " + std::to_string(restarted);
}

void allow_many_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int, char** argv) {
  try {
    allow_many_files();
    const std::string program = argv[0];
    const StoreProcess store(program.substr(0, program.rfind('/')) + "/cohort");
    std::ifstream commands(argv[2]);
    std::string line;
    for (int number = 0; std::getline(commands, line) && line != "quit"; ++number) {
      std::cout << "= " << meet(std::stoi(line.substr(5)), store.port(), number) << "\n" << std::flush;
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
