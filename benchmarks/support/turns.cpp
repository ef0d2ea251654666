#include "benchmarks/support/turns.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <stdexcept>

#include "benchmarks/support/turn_order.h"
#include "build_facts.h"
#include "cohort/base/text/text.h"

namespace cohort::bench {
namespace {

constexpr int kFewestBlockRounds = 3;

}  // namespace

Times take_turns(const std::vector<Variant>& variants, const BlockPlan& plan) {
  Times times;
  TurnOrder order(variants.size());
  for (int round = 0; round < plan.num_rounds; ++round) {
    const auto limit = round < kFewestBlockRounds ? plan.end : std::min(plan.deadline, plan.end);
    if (round > 0 && std::chrono::steady_clock::now() > limit) break;
    for (const size_t side : order.next()) {
      const Variant& variant = variants[side];
      const auto command = fmt::format("run {} {} {}", variant.command, plan.num_warm, plan.num_steps);
      times[variant.name].push_back(variant.team->ask_number(command));
    }
  }
  return times;
}

bool agree(const std::string& a, const std::string& b, double tolerance) {
  const auto left = base::split(a, ' ');
  const auto right = base::split(b, ' ');
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    const double x = base::parse_double(left[i]).value_or(NAN);
    const double y = base::parse_double(right[i]).value_or(NAN);
    if (!(std::abs(x - y) <= tolerance * (1 + std::abs(x)))) return false;
  }
  return true;
}

void check_case(const std::string& name, const std::vector<std::string>& cases) {
  if (name.empty() || std::find(cases.begin(), cases.end(), name) != cases.end()) return;
  throw std::runtime_error(fmt::format("there is no case \"{}\"{}; cases: {}", name, base::did_you_mean(name, cases),
                                       base::join(cases, ", ")));
}

std::string find_python() {
  const std::string python = std::string(kSourceDir) + "/.venv/bin/python";
  return std::filesystem::exists(python) ? python : std::string();
}

}  // namespace cohort::bench
