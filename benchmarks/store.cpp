// store: operations per second of our TCP store's server and LibTorch's, with the same clients, which take turns.
#include <fcntl.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <stdexcept>

#include "benchmarks/question.h"
#include "benchmarks/store_load.h"
#include "cohort/base/process.h"
#include "cohort/base/text.h"

namespace cohort::bench {
namespace {

using std::chrono::milliseconds;

// A server is a process of its own, which prints a line that ends with its port.
class Server {
 public:
  explicit Server(const std::vector<std::string>& command) : process_(start(command)) {
    std::string line;
    char letter = 0;
    while (read(process_.standard_output().get(), &letter, 1) == 1 && letter != '\n') line.push_back(letter);
    const auto words = base::split(line, ' ');
    const auto port = base::parse_int(words.back());
    if (!port) throw std::runtime_error(command.front() + " says \"" + line + "\", no port");
    port_ = static_cast<int>(*port);
  }
  int port() const { return port_; }

 private:
  static base::Process start(const std::vector<std::string>& command) {
    auto process = base::Process::start({.arguments = command, .standard_output = base::Stream::pipe()});
    if (!process) throw std::runtime_error(process.error().describe());
    return std::move(*process);
  }
  base::Process process_;
  int port_ = 0;
};

struct Case {
  std::string name;
  int num_clients;
  /// Seconds per operation, or until all have woken up.
  double (*measure)(StoreLoad& load, milliseconds duration);
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int clients : {1, 16, 256}) {
    all.push_back({"set-get-add", clients,
                   [](StoreLoad& load, milliseconds duration) { return load.run(StoreLoad::Kind::kMix, duration); }});
    all.push_back({"compare_set", clients, [](StoreLoad& load, milliseconds duration) {
                     return load.run(StoreLoad::Kind::kCompareSet, duration);
                   }});
    all.push_back({"wake-up", clients + 1, [](StoreLoad& load, milliseconds) {
                     double sum = 0;
                     for (int i = 0; i < 10; ++i) sum += load.wake_up();
                     return sum / 10;
                   }});
  }
  return all;
}

Row measure(const Case& what, int our_port, int their_port, const Settings& settings) {
  StoreLoad ours(our_port, what.num_clients);
  StoreLoad theirs(their_port, what.num_clients);
  const milliseconds duration(settings.is_quick ? 100 : 300);
  std::vector<double> our_times, their_times;
  for (int round = -1; round < (settings.is_quick ? 9 : 25); ++round) {
    const double one = what.measure(round % 2 ? ours : theirs, duration);
    const double other = what.measure(round % 2 ? theirs : ours, duration);
    if (round < 0) continue;  // to warm up
    our_times.push_back(round % 2 ? one : other);
    their_times.push_back(round % 2 ? other : one);
  }
  Row row = compare_times(our_times, their_times);
  const bool is_wake_up = what.name == "wake-up";
  const int shown = is_wake_up ? what.num_clients - 1 : what.num_clients;
  row.case_name = what.name + (is_wake_up ? "/waiters=" : "/clients=") + std::to_string(shown);
  row.rival_name = "libtorch";
  row.unit = is_wake_up ? "us" : "op/s";
  row.ours = is_wake_up ? *row.ours * 1e6 : 1 / *row.ours;
  row.rival = is_wake_up ? *row.rival * 1e6 : 1 / *row.rival;
  return row;
}

}  // namespace

std::vector<Row> run_store(const Settings& settings) {
  const Server ours({settings.program_folder + "/cohort", "store", "--host=127.0.0.1", "--port=0"});
  const Server theirs({settings.program, kTorchStoreServer});
  std::vector<Row> rows;
  for (const auto& each : cases()) rows.push_back(measure(each, ours.port(), theirs.port(), settings));
  return rows;
}

}  // namespace cohort::bench
