// Lists of actions: what is read is written and read again as the same, and checks of it and additions to it end.
#include <string>

#include "cohort/pipeline/csv.h"
#include "cohort/pipeline/lowering.h"
#include "cohort/pipeline/simulation.h"
#include "cohort/pipeline/validation.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace cohort::pipeline;

// The smallest pipeline that has all that the list names.
PipelineShape shape_of(const PipelineOrder& order) {
  PipelineShape shape{static_cast<int>(order.size()), 1, 1};
  for (const auto& list : order) {
    for (const auto& action : list) {
      for_each_part(action, [&](const Action& part) {
        if (part.stage >= shape.num_stages) shape.num_stages = part.stage + 1;
        if (part.microbatch >= shape.num_microbatches) shape.num_microbatches = part.microbatch + 1;
      });
    }
  }
  return shape;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto order = parse_csv("plan.csv", cohort::fuzz::text_of(data, size));
  if (!order) {
    FUZZ_CHECK(order.error().describe().size() < 2000);
    return 0;
  }
  const auto again = parse_csv("again.csv", csv_text(*order));
  FUZZ_CHECK(again && *again == *order);
  const auto shape = shape_of(*order);
  if (const auto ranks = validate_compute(*order, shape, OrderFormat::kComputeComms)) {
    const auto fine = validate_communication(*order, *ranks);
    if (fine) {
      (void)simulate(*order, *ranks, OrderFormat::kComputeComms);
      (void)defer_receives(*order, *ranks);
    }
  }
  if (const auto ranks = validate_compute(*order, shape, OrderFormat::kComputeOnly)) {
    const auto ends = simulate(*order, *ranks, OrderFormat::kComputeOnly).ok();
    const auto full = add_communication(*order, *ranks, shape.num_microbatches);
    if (!full) return 0;
    FUZZ_CHECK(ends && validate_communication(*full, *ranks));
    FUZZ_CHECK(simulate(*full, *ranks, OrderFormat::kComputeComms).ok());
  }
  return 0;
}
