// What users and schedulers write. The first letter says what the lines behind it are: 'c' --config's file, 'e' variables of a
// scheduler, 'r' --nnodes, --rdzv-backend, --rdzv-endpoint, --rdzv-conf and --rdzv-id, any other the words behind `cohort run`.
#include <algorithm>
#include <string>
#include <vector>

#include "cohort/base/log/log.h"
#include "cohort/base/text/text.h"
#include "cohort/rendezvous/environment/scheduler_flags.h"
#include "tests/fuzz/fuzz.h"
#include "tools/cohort/config_file.h"
#include "tools/cohort/run.h"

namespace cohort::fuzz {
namespace {

using Words = std::vector<std::string>;

void read_config(const std::string& text) {
  const std::vector<cli::Flag> flags = {{"--nproc-per-node"}, {"--rdzv-conf"}, {"--standalone", false}, {"-t"}};
  if (text.size() <= cli::kMostConfigBytes) (void)cli::flags_from_text(text, flags);
}

void read_variables(const Words& lines) {
  rendezvous::Variables variables;
  for (const auto& line : lines) {
    const auto equals = std::min(line.find('='), line.size());
    variables[line.substr(0, equals)] = line.substr(std::min(equals + 1, line.size()));
  }
  rendezvous::Flags flags{.num_nodes = variables["nnodes"].empty() ? "1:1" : variables["nnodes"],
                          .backend = variables["backend"].empty() ? "static" : variables["backend"]};
  (void)rendezvous::fill_from_scheduler(flags, variables);
  (void)rendezvous::parse_settings(flags);
}

void read_meeting(Words lines) {
  lines.resize(5);
  const auto settings = rendezvous::parse_settings(
      {.num_nodes = lines[0], .backend = lines[1], .endpoint = lines[2], .run_id = lines[4], .conf = lines[3]});
  if (!settings) return;
  FUZZ_CHECK(settings->min_nodes >= 1 && settings->min_nodes <= settings->max_nodes);
  FUZZ_CHECK(settings->port >= 0 && settings->port <= 65535);
  FUZZ_CHECK(!settings->run_id.empty() && settings->join_timeout.count() > 0);
}

// --config would read whatever file the input names.
bool names_a_file(const std::string& word) { return word.starts_with("--co"); }

void read_words(const Words& words) {
  if (std::any_of(words.begin(), words.end(), names_a_file)) return;
  elastic::LaunchFlags flags;
  const auto help = cli::parse_run_flags(words, &flags);
  if (!help || *help) return;
  FUZZ_CHECK(!flags.plan.program.name.empty() || !words.empty());
  (void)elastic::plan_launch(flags, {.devices = {.num_cores = 8, .num_gpus = 2}, .gpu_nodes = {0, 1}});
}

}  // namespace
}  // namespace cohort::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  cohort::base::set_log_level(cohort::base::LogLevel::kError);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  if (size == 0) return 0;
  const std::string text(fuzz::text_of(data + 1, size - 1));
  if (data[0] == 'c') {
    fuzz::read_config(text);
  } else if (data[0] == 'e') {
    fuzz::read_variables(base::split(text, '\n'));
  } else if (data[0] == 'r') {
    fuzz::read_meeting(base::split(text, '\n'));
  } else {
    fuzz::read_words(base::split(text, '\n'));
  }
  return 0;
}
