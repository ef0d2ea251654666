// store: operations per second of our TCP store's server and LibTorch's, with the same clients, in turn.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <stdexcept>

#include "benchmarks/store/store_load.h"
#include "benchmarks/support/question.h"
#include "benchmarks/support/turn_order.h"
#include "benchmarks/support/value_or_throw.h"
#include "cohort/base/machine/cpu_topology.h"
#include "cohort/base/process/process.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"

namespace cohort::bench {
namespace {

using std::chrono::milliseconds;

// A server, a separate process on one CPU that prints a line ending with its port.
class Server {
 public:
  Server(const std::vector<std::string>& command, int cpu) : process_(start(command, cpu)) {
    std::string line;
    char letter = 0;
    while (read(process_.standard_output().get(), &letter, 1) == 1 && letter != '\n') line.push_back(letter);
    const auto words = base::split(line, ' ');
    const auto port = base::parse_int(words.back());
    if (!port) throw std::runtime_error(command.front() + " says \"" + line + "\", which names no port");
    port_ = static_cast<int>(*port);
  }
  int port() const { return port_; }

 private:
  static base::Process start(const std::vector<std::string>& command, int cpu) {
    base::ProcessOptions options;
    options.arguments = command;
    options.standard_output = base::Stream::pipe();
    options.cpus = {cpu};
    // LibTorch's server resolves the name of every client's address. A name server that drops some of the questions must not cost
    // 5 seconds each.
    options.environment = base::environment();
    (*options.environment)["RES_OPTIONS"] = "timeout:1 attempts:1";
    return value_or_throw(base::Process::start(options));
  }
  base::Process process_;
  int port_ = 0;
};

// Keeps this thread on one CPU. A request and its answer take 20 us if client and server share a CPU, and 90 if not; the kernel
// would choose differently for every pair, and only its choice would be measured.
class Pinned {
 public:
  explicit Pinned(int cpu) {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~Pinned() { sched_setaffinity(0, sizeof before_, &before_); }
  Pinned(const Pinned&) = delete;

 private:
  cpu_set_t before_;
};

struct StoreCase {
  std::string name;
  int num_clients;
  /// Returns the seconds per operation, or until all have woken up.
  double (*measure)(StoreLoad& load, int num_clients, milliseconds duration);
};

std::vector<StoreCase> store_cases() {
  std::vector<StoreCase> all;
  for (const int clients : {1, 16, 256}) {
    all.push_back({"set-get-add", clients, [](StoreLoad& load, int num_clients, milliseconds duration) {
                     return load.run(StoreLoad::Kind::kMix, num_clients, duration);
                   }});
    all.push_back({"compare_set", clients, [](StoreLoad& load, int num_clients, milliseconds duration) {
                     return load.run(StoreLoad::Kind::kCompareSet, num_clients, duration);
                   }});
    all.push_back({"wake-up", clients + 1, [](StoreLoad& load, int num_clients, milliseconds) {
                     double sum = 0;
                     for (int i = 0; i < 10; ++i) sum += load.wake_up(num_clients);
                     return sum / 10;
                   }});
  }
  return all;
}

Row measure_store(const StoreCase& what, StoreLoad& ours, StoreLoad& theirs, const Settings& settings) {
  const milliseconds duration(settings.is_quick ? 100 : 300);
  const int num_rounds = settings.rounds(25, 9);
  const std::vector<std::function<double()>> sides = {[&] { return what.measure(ours, what.num_clients, duration); },
                                                      [&] { return what.measure(theirs, what.num_clients, duration); }};
  if (num_rounds > 1) measure_in_turns(sides, 1);  // warms up
  const auto times = measure_in_turns(sides, num_rounds);
  Row row = compare_times(times[0], times[1]);
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
  const std::vector<int> cpus = base::allowed_cpus();
  const Server ours({settings.program_folder + "/cohort", "store", "--host=127.0.0.1", "--port=0"}, cpus.back());
  const Server theirs({settings.program, kTorchStoreServer}, cpus.back());
  const Pinned clients(cpus.front());
  const std::vector<StoreCase> cases = store_cases();
  int num_clients = 0;
  for (const auto& each : cases) num_clients = std::max(num_clients, each.num_clients);
  // Made once for all cases, as idle clients cost a server nothing.
  StoreLoad our_load(ours.port(), num_clients);
  StoreLoad their_load(theirs.port(), num_clients);
  std::vector<Row> rows;
  for (const auto& each : cases) rows.push_back(measure_store(each, our_load, their_load, settings));
  return rows;
}

}  // namespace cohort::bench
