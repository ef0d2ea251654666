#include "cohort/parallel/ddp/reducer_errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cohort::ddp {
namespace {

constexpr const char* kUnfinished =
    "Expected to have finished reduction in the prior iteration before starting a new one. ";
constexpr const char* kDebugHint =
    "\n In addition, you can set the environment variable TORCH_DISTRIBUTED_DEBUG to either INFO or DETAIL to print "
    "out "
    "information about which particular parameters did not receive gradient on this rank as part of this error";

std::string joined_names(const std::vector<size_t>& indices, const std::vector<std::string>& names) {
  std::string text;
  for (const size_t index : indices) text += (text.empty() ? "" : ", ") + names[index];
  return text;
}

}  // namespace

std::string unfinished_reduction_message(const UnfinishedReduction& state) {
  std::string out = kUnfinished;
  if (state.static_graph) {
    out +=
        "This error indicates that your training graph has changed in this iteration, e.g., one parameter is used "
        "in "
        "first iteration, but then got unused in the second iteration. this is not compatible with static_graph set "
        "to True.";
    return out;
  }
  out += "This error indicates that your module has parameters that were not used in producing loss. ";
  if (state.find_unused_parameters) {
    out +=
        "Since `find_unused_parameters=True` is enabled, this likely means that not all `forward` outputs "
        "participate "
        "in computing loss. You can fix this by ";
  } else {
    out +=
        "You can enable unused parameter detection by passing the keyword argument `find_unused_parameters=True` to "
        "`DistributedDataParallel`, and by ";
  }
  out += "making sure all `forward` function outputs participate in calculating loss.";
  if (!state.names.empty()) {
    out += fmt::format("\nParameters which did not receive grad for rank {}: {}", state.rank,
                       joined_names(state.indices, state.names));
  }
  out += fmt::format("\nParameter indices which did not receive grad for rank {}: {}", state.rank,
                     fmt::join(state.indices, " "));
  if (state.names.empty()) out += kDebugHint;
  return out;
}

std::string ready_twice_message(size_t index, const std::vector<std::string>& names, bool searched) {
  std::string out =
      "Expected to mark a variable ready only once. Either a parameter is used outside `forward` (for example "
      "shared by "
      "several forward and backward passes at a time), or several reentrant backward passes use it (for example "
      "checkpoints over the same part of the model). If the graph is the same in every iteration, static_graph "
      "allows "
      "this.";
  if (searched) {
    out +=
        " Or a parameter was found unused in the outputs of `forward` and then took part in the loss in another "
        "way; "
        "if all parameters take part, turn off find_unused_parameters.";
  }
  out += fmt::format("\nParameter at index {}", index);
  if (index < names.size()) out += " with name " + names[index];
  out +=
      " has been marked as ready twice. This means that multiple autograd engine hooks have fired for this "
      "particular "
      "parameter during this iteration.";
  return out;
}

std::string graph_changed_message() {
  return "Your training graph has changed in this iteration, e.g., one parameter is unused in first iteration, but "
         "then got "
         "used in the second iteration. this is not compatible with static_graph set to True.";
}

}  // namespace cohort::ddp
