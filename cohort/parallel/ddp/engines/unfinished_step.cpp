#include "cohort/parallel/ddp/engines/unfinished_step.h"

#include <c10/util/Exception.h>

namespace cohort::ddp {

void throw_unfinished(const ReducerOptions& options, Audience audience, const char* what,
                      const std::vector<char>& is_ready) {
  UnfinishedReduction state{.audience = audience,
                            .what = what,
                            .rank = options.process_group->getRank(),
                            .world_size = options.process_group->getSize(),
                            .find_unused_parameters = options.find_unused_parameters,
                            .static_graph = options.static_graph,
                            .indices = {},
                            .names = options.parameter_names,
                            .num_parameters = is_ready.size()};
  for (size_t i = 0; i < is_ready.size(); ++i) {
    if (!is_ready[i]) state.indices.push_back(i);
  }
  TORCH_CHECK(false, unfinished_reduction_message(state));
}

}  // namespace cohort::ddp
