// Answers requests about lists of actions, one a line, with a text that ends in a line "." each:
//   plan NAME RANKS STAGES MICROBATCHES       the list of what is computed
//   lower NAME RANKS STAGES MICROBATCHES      with communication
//   defer NAME RANKS STAGES MICROBATCHES      with receives as late as they can be
//   table NAME RANKS STAGES MICROBATCHES      as a table
//   reduce NAME RANKS STAGES MICROBATCHES     with the reduction of gradients only
//   copy FORMAT RANKS STAGES MICROBATCHES IN OUT   a file that is read, checked and written
#include <iostream>
#include <sstream>
#include <string>

#include "cohort/pipeline/action_text.h"
#include "cohort/pipeline/csv.h"
#include "cohort/pipeline/lowering.h"
#include "cohort/pipeline/schedules.h"
#include "cohort/pipeline/simulation.h"
#include "cohort/pipeline/validation.h"

namespace {

using namespace cohort::pipeline;
using cohort::base::Result;

Result<std::string> lowered(const PipelineOrder& order, const PipelineShape& shape, bool is_deferred) {
  auto ranks = validate_compute(order, shape, OrderFormat::kComputeOnly);
  if (!ranks) return ranks.error();
  auto full = add_communication(order, *ranks, shape.num_microbatches);
  if (full && is_deferred) full = defer_receives(*full, *ranks);
  if (!full) return full.error();
  if (auto fine = validate_compute(*full, shape, OrderFormat::kComputeComms); !fine) return fine.error();
  if (auto fine = validate_communication(*full, *ranks); !fine) return fine.error();
  if (auto fine = simulate(*full, *ranks, OrderFormat::kComputeComms); !fine) return fine.error();
  return csv_text(*full);
}

Result<std::string> copied(const std::string& format, const PipelineShape& shape, std::istream& in) {
  std::string from, to;
  in >> from >> to;
  auto order = load_csv(from);
  if (!order) return order.error();
  const auto kind = format == "compute_only" ? OrderFormat::kComputeOnly : OrderFormat::kComputeComms;
  if (auto fine = validate_compute(*order, shape, kind); !fine) return fine.error();
  if (auto fine = save_csv(to, *order); !fine) return fine.error();
  return std::string("ok\n");
}

Result<std::string> answer(std::istream& in) {
  std::string request, name;
  PipelineShape shape;
  in >> request >> name >> shape.num_ranks >> shape.num_stages >> shape.num_microbatches;
  if (request == "copy") return copied(name, shape, in);
  const auto kind = schedule_by_name(name);
  if (!kind) return kind.error();
  auto order = plan_schedule(*kind, shape);
  if (!order) return order.error();
  if (request == "table") return order_table(*order);
  if (request == "lower" || request == "defer") return lowered(*order, shape, request == "defer");
  if (request == "plan") return csv_text(*order);
  for (auto& list : *order) list = add_reduce_grad(list, shape.num_microbatches);
  return csv_text(*order);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    const auto text = answer(in);
    std::cout << (text ? *text : "error: " + text.error().describe() + "\n") << ".\n";
  }
  return 0;
}
