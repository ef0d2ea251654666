// collectives: measures each operation between ranks of one machine.
//
// Our ranks run our backend, LibTorch's own Gloo and the roof probe in the same processes; OpenMPI's ranks are separate
// processes. In each round every engine makes a block of calls while the others sleep; a pair is one round. Each engine's first
// call is checked on every rank, and from 1 MiB on calls use buffers in turn, so that they are in no cache.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include "benchmarks/collectives/collective_case.h"
#include "benchmarks/collectives/collective_table.h"
#include "benchmarks/collectives/roof.h"
#include "benchmarks/support/block_times.h"
#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turn_order.h"
#include "build_facts.h"
#include "cohort/base/text/text.h"

namespace cohort::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr const char* kMpiRank = "cohort-bench-mpi-rank";
constexpr int kFewestRounds = 3;
constexpr double kLongCall = 50e6;
// Below this size a call is only waiting, without data: the roof is meaningless, and staging costs nothing.
constexpr size_t kSmallestWithRoof = size_t{64} << 10;

// --quick must answer within 45 s, `make bench` within 10 minutes.
struct Effort {
  Seconds limit;
  double block_nanoseconds;
  int most_calls;
  int most_rounds;
};
constexpr Effort kQuick{Seconds(34), 3e6, 300, 15};
constexpr Effort kFull{Seconds(540), 10e6, 1000, 60};

// One engine in one case.
struct Contestant {
  std::string rival_name;
  Team* team = nullptr;
  std::string engine;
  CollectiveCase what;
  int num_warm = 0;
  int num_calls = 1;
  BlockTimes times = {};
  std::string failure = {};

  std::vector<double> run(int warm, int calls) const {
    return slowest_rank(team->ask(fmt::format("run {} {} {} {}", engine, case_name(what), warm, calls)));
  }
};

// The ranks for one group size.
struct Teams {
  Team cohort;
  std::optional<Team> mpi;
  /// The name of the MPI, or why there is none.
  std::string mpi_note;
  /// The name of Gloo's class.
  std::string gloo_note;
  /// Whether our backend supports tensors in shared memory, and records that can be turned off.
  bool is_shm = false;
};

std::optional<Team> start_mpi(const std::string& folder, int num_ranks, const Settings& settings, std::string& note) {
  const std::string program = settings.program_folder + "/" + kMpiRank;
  note = "OpenMPI was not found when cohort-bench was built";
  if (std::string(kMpiExec).empty() || !std::filesystem::exists(program)) return std::nullopt;
  std::optional<Team> team;
  try {
    team.emplace(
        TeamOptions{.name = fmt::format("mpi-{}", num_ranks),
                    .folder = folder,
                    .num_ranks = num_ranks,
                    .command = {kMpiExec, "--oversubscribe", "-n", std::to_string(num_ranks), program},
                    .is_launcher = true,
                    .environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}}});
    note = team->ask("describe").front();
    if (note.starts_with("Open MPI")) return team;
    note = "the MPI found is not OpenMPI: " + note;
  } catch (const std::exception& error) {
    note = fmt::format("OpenMPI does not run here: {}", error.what());
  }
  return std::nullopt;
}

Teams start_teams(const std::string& folder, int num_ranks, const Settings& settings) {
  std::string note;
  Team cohort({.name = fmt::format("cohort-{}", num_ranks),
               .folder = folder,
               .num_ranks = num_ranks,
               .command = {settings.program, kCollectivesRank, std::to_string(num_ranks), settings.backend}});
  auto mpi = start_mpi(folder, num_ranks, settings, note);
  const std::string gloo_note = cohort.ask("describe gloo").front();
  return {std::move(cohort), std::move(mpi), note, gloo_note, settings.backend == "shm"};
}

// If a rival cannot run the case, its figure is left out; a failure of ours is an error.
void verify(Contestant& variant) {
  for (const std::string& answer : variant.team->ask("verify " + variant.engine + " " + case_name(variant.what))) {
    if (answer == "ok") continue;
    const std::string text = fmt::format("{}, {}: {}", case_name(variant.what), variant.engine, answer);
    if (variant.engine == "ours") throw std::runtime_error(text);
    variant.failure = text;
  }
}

void set_block(Contestant& variant, const Effort& effort) {
  double call = median(variant.run(0, 1));
  if (call < effort.block_nanoseconds) call = median(variant.run(5, 20));
  const bool is_long = call > kLongCall;
  variant.num_calls = static_cast<int>(std::clamp(effort.block_nanoseconds / std::max(call, 1.0), is_long ? 1.0 : 2.0,
                                                  static_cast<double>(effort.most_calls)));
  variant.num_warm = is_long ? 0 : std::min(variant.num_calls, call < 1e6 ? 10 : 1);
}

// Returns the style that moves the case's bytes fastest on this machine at this time.
Contestant fastest_roof(Team& team, const CollectiveCase& what) {
  Contestant best;
  double least = 0;
  for (const std::string& style : roof_styles(what)) {
    const Contestant candidate{.rival_name = "roof", .team = &team, .engine = style, .what = what};
    const double time = median(candidate.run(1, 3));
    if (best.team && time >= least) continue;
    best = candidate;
    least = time;
  }
  return best;
}

CollectiveCase with_memory(CollectiveCase what, Memory memory) {
  what.memory = memory;
  return what;
}

// The cost of records is visible if calls are short.
bool shows_trace(const CollectiveCase& what) {
  return what.op == Op::kAllReduce && what.dtype == DType::kFloat32 && what.num_bytes <= (size_t{1} << 20);
}

class Comparison {
 public:
  Comparison(Teams& teams, const CollectiveCase& what, const Effort& effort) : teams_(teams), effort_(effort) {
    const bool has_roof = what.num_bytes >= kSmallestWithRoof;
    const bool is_also_shared = has_roof && teams.is_shm;
    const auto shared = with_memory(what, Memory::kShared);
    const auto allocator = with_memory(what, Memory::kAllocator);
    add("", "ours", what);
    add("gloo", "gloo", what);
    if (teams.mpi) add("openmpi", "openmpi", what);
    if (teams.is_shm && shows_trace(what)) add("no-trace", "no-trace", what);
    if (is_also_shared) add("", "ours", shared);
    if (is_also_shared) add("", "ours", allocator);
    for (Contestant& variant : variants_) verify(variant);
    if (has_roof) variants_.push_back(fastest_roof(teams.cohort, what));
    if (is_also_shared) variants_.push_back(fastest_roof(teams.cohort, shared));
    for (Contestant& variant : variants_) {
      if (variant.failure.empty()) set_block(variant, effort);
    }
  }

  // Stops at `deadline`, but not before a few rounds; at `end` after any round.
  void measure(Clock::time_point deadline, Clock::time_point end) {
    std::vector<Contestant*> able;
    for (Contestant& variant : variants_) {
      if (variant.failure.empty()) able.push_back(&variant);
    }
    TurnOrder order(able.size());
    for (int round = 0; round < effort_.most_rounds; ++round) {
      if (Clock::now() > (round < kFewestRounds ? end : deadline) && round > 0) break;
      for (const size_t side : order.next()) {
        Contestant& variant = *able[side];
        variant.times.add(variant.run(variant.num_warm, variant.num_calls));
      }
    }
  }

  void add_rows(std::vector<Row>& rows) const {
    for (const Memory memory : {Memory::kPrivate, Memory::kShared, Memory::kAllocator}) {
      const Contestant* ours = find("", memory);
      if (!ours) continue;
      rows.push_back(row_of(*ours, "gloo", find("gloo", Memory::kPrivate), teams_.gloo_note));
      rows.push_back(row_of(*ours, "openmpi", find("openmpi", Memory::kPrivate), teams_.mpi_note));
      const Contestant* roof = find("roof", memory == Memory::kPrivate ? memory : Memory::kShared);
      if (roof) rows.push_back(row_of(*ours, "roof", roof, roof->engine));
      if (memory == Memory::kAllocator) rows.push_back(row_of(*ours, "shm_empty", find("", Memory::kShared), ""));
      const Contestant* no_trace = find("no-trace", memory);
      if (no_trace) rows.push_back(row_of(*ours, "no-trace", no_trace, "the same group without its records"));
    }
  }

 private:
  void add(const std::string& rival_name, const std::string& engine, const CollectiveCase& what) {
    Team* team = engine == "openmpi" ? &*teams_.mpi : &teams_.cohort;
    variants_.push_back({.rival_name = rival_name, .team = team, .engine = engine, .what = what});
  }
  const Contestant* find(const std::string& rival_name, Memory memory) const {
    for (const Contestant& variant : variants_) {
      if (variant.rival_name == rival_name && variant.what.memory == memory) return &variant;
    }
    return nullptr;
  }

  static Row row_of(const Contestant& ours, const std::string& rival_name, const Contestant* rival,
                    const std::string& note) {
    Row row;
    if (rival && !rival->times.empty()) {
      row = compare_blocks(ours.times, rival->times);
    } else {
      row.ours = median(ours.times.medians());
      row.ours_spread = ours.times.spread();
      row.unit = "us";
    }
    row.case_name = case_name(ours.what);
    row.rival_name = rival_name;
    row.note = rival && !rival->failure.empty() ? rival->failure : note;
    return row;
  }

  Teams& teams_;
  Effort effort_;
  std::vector<Contestant> variants_;
};

// Divides the remaining time among the remaining cases.
class Schedule {
 public:
  Schedule(const std::vector<CollectiveCase>& cases, Clock::time_point end) : end_(end) {
    for (const CollectiveCase& what : cases) weight_left_ += weight(what);
  }
  Clock::time_point deadline_of(const CollectiveCase& what) {
    const auto now = Clock::now();
    const Seconds left = std::max(Seconds(0), Seconds(end_ - now));
    const double share = weight(what) / weight_left_;
    weight_left_ -= weight(what);
    return now + std::chrono::duration_cast<Clock::duration>(left * share);
  }

 private:
  static double weight(const CollectiveCase& what) {
    const double by_size = what.num_bytes < (size_t{1} << 20) ? 1 : what.num_bytes < (size_t{64} << 20) ? 2 : 6;
    return by_size * (1 + what.num_ranks / 8.0);
  }
  Clock::time_point end_;
  double weight_left_ = 0;
};

// OpenMPI and three kinds of our tensors have separate buffers; limits them to half of the machine's memory.
bool fits_into_memory(const CollectiveCase& what) {
  const auto plan = plan_buffers(what, default_fresh_bytes());
  const size_t num_engines = 4;
  const size_t needed =
      num_engines * static_cast<size_t>(what.num_ranks) * plan.num_buffers * (plan.input_bytes + plan.output_bytes);
  const size_t memory = static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return needed <= memory / 2;
}

// For cases that the machine was too busy to reach.
void add_rows_without_time(const CollectiveCase& what, std::vector<Row>& rows) {
  for (const char* rival : {"gloo", "openmpi", "roof"}) {
    Row row;
    row.case_name = case_name(what);
    row.rival_name = rival;
    row.unit = "us";
    row.note = "no time left";
    rows.push_back(row);
  }
}

}  // namespace

std::vector<Row> run_collectives(const Settings& settings) {
  const Effort& effort = settings.is_quick ? kQuick : kFull;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(effort.limit);
  const auto filter = parse_filter(settings.ops, settings.sizes, settings.dtypes, settings.ranks);
  auto cases = list_cases(filter, settings.is_quick);
  const auto too_large = std::stable_partition(cases.begin(), cases.end(), fits_into_memory);
  for (auto it = too_large; it != cases.end(); ++it)
    fmt::print("left out because there is not enough memory: {}\n", case_name(*it));
  cases.erase(too_large, cases.end());
  Schedule schedule(cases, end);
  const ScratchFolder folder;
  std::optional<Teams> teams;
  std::vector<Row> rows;
  int num_ranks = 0;
  for (const CollectiveCase& what : cases) {
    if (what.num_ranks != num_ranks) {
      num_ranks = what.num_ranks;
      teams.reset();
      teams.emplace(start_teams(folder.path(), num_ranks, settings));
      fmt::print("{} ranks: gloo is {}, openmpi is {}\n", num_ranks, teams->gloo_note, teams->mpi_note);
      std::fflush(stdout);
    }
    const auto deadline = schedule.deadline_of(what);
    if (Clock::now() > end) {
      add_rows_without_time(what, rows);
      continue;
    }
    Comparison comparison(*teams, what, effort);
    comparison.measure(deadline, end);
    comparison.add_rows(rows);
  }
  return rows;
}

void print_collectives(const std::vector<Row>& rows) {
  fmt::print("{}", collectives_table(rows));
  std::fflush(stdout);
}

}  // namespace cohort::bench
