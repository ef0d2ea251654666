#include "cohort/parallel/ddp/settings/reducer_errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cohort/comm/error/exception_text.h"

namespace cohort::ddp {
namespace {

constexpr const char* kUnfinished =
    "Expected to have finished reduction in the prior iteration before starting a new one. ";
constexpr const char* kDebugHint =
    "\n In addition, you can set the environment variable TORCH_DISTRIBUTED_DEBUG to either INFO or DETAIL to print "
    "out "
    "information about which particular parameters did not receive gradient on this rank as part of this error";

// The limit of lists in messages.
constexpr size_t kMostShown = 20;

std::string joined_names(const std::vector<size_t>& indices, const std::vector<std::string>& names) {
  std::string text;
  for (const size_t index : indices) text += (text.empty() ? "" : ", ") + names[index];
  return text;
}

// Returns `4 "right.weight"`, or `4` if there are no names.
std::string parameter_text(size_t index, const std::vector<std::string>& names) {
  return index < names.size() ? fmt::format("{} \"{}\"", index, names[index]) : std::to_string(index);
}

std::string parameter_list(const UnfinishedReduction& state) {
  std::string text;
  for (size_t i = 0; i < std::min(state.indices.size(), kMostShown); ++i) {
    text += (i == 0 ? "" : ", ") + parameter_text(state.indices[i], state.names);
  }
  return state.indices.size() > kMostShown ? fmt::format("{} and {} more", text, state.indices.size() - kMostShown)
                                           : text;
}

std::string naming_hint(const std::vector<std::string>& names) {
  return names.empty() ? ". Set ReducerOptions::parameter_names to see names here" : "";
}

std::string reducer_text(const std::string& what, int rank, int world_size, const std::string& cause,
                         const std::string& hint) {
  return fmt::format("[cohort] ddp::Reducer: {}\n  rank {} of {}\n  caused by: {}\n  hint: {}", what, rank, world_size,
                     cause, hint);
}

std::string unfinished_for_reducer(const UnfinishedReduction& state) {
  const auto cause = fmt::format("{} of {} parameters got no gradient: {}", state.indices.size(), state.num_parameters,
                                 parameter_list(state));
  std::string hint;
  if (state.static_graph) {
    hint =
        "ReducerOptions::static_graph promises that every step uses the parameters of the first one. Leave it off, and "
        "set "
        "find_unused_parameters if some steps use fewer";
  } else if (state.find_unused_parameters) {
    hint =
        "the tensors given to prepare() depend on these parameters, but the loss does not. Call finalize() after the "
        "last "
        "backward() of each step, which counts parameters without a gradient as unused; or give prepare() only tensors "
        "that "
        "the loss is computed from";
  } else {
    hint =
        "a step ends when every parameter has got its gradient. Call backward() on losses that use all of them; or, if "
        "a "
        "step may leave some out, set ReducerOptions::find_unused_parameters and call finalize() after the last "
        "backward() "
        "of each step";
  }
  return reducer_text(state.what, state.rank, state.world_size, cause, hint + naming_hint(state.names));
}

}  // namespace

std::string unfinished_reduction_message(const UnfinishedReduction& state) {
  if (state.audience == Audience::kReducer) return unfinished_for_reducer(state);
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

std::string ready_twice_message(const ExtraGradient& state) {
  const auto& names = state.names;
  if (state.audience == Audience::kReducer) {
    std::string hint =
        "a step takes one gradient per parameter. Call prepare() just before the last backward() of a step: the "
        "gradients of "
        "earlier ones wait on their rank and are added to it; or add the losses and call backward() once. If every "
        "step has "
        "the same graph, ReducerOptions::static_graph allows several gradients";
    if (state.searched) {
      hint +=
          ". A parameter also counts as ready if the tensors given to prepare() do not depend on it: give it all "
          "tensors that "
          "the loss is computed from, or none and call finalize()";
    }
    return reducer_text("backward() has computed a second gradient of a parameter in one step", state.rank,
                        state.world_size, "parameter " + parameter_text(state.index, names) + " was ready before",
                        hint + naming_hint(names));
  }
  std::string out =
      "Expected to mark a variable ready only once. Either a parameter is used outside `forward` (for example "
      "shared by "
      "several forward and backward passes at a time), or several reentrant backward passes use it (for example "
      "checkpoints over the same part of the model). If the graph is the same in every iteration, static_graph "
      "allows "
      "this.";
  if (state.searched) {
    out +=
        " Or a parameter was found unused in the outputs of `forward` and then took part in the loss in another "
        "way; "
        "if all parameters take part, turn off find_unused_parameters.";
  }
  out += fmt::format("\nParameter at index {}", state.index);
  if (state.index < names.size()) out += " with name " + names[state.index];
  out +=
      " has been marked as ready twice. This means that multiple autograd engine hooks have fired for this "
      "particular "
      "parameter during this iteration.";
  return out;
}

std::string graph_changed_message(const ExtraGradient& state) {
  if (state.audience == Audience::kReducer) {
    return reducer_text(
        "a step differs from the first one, which ReducerOptions::static_graph rules out", state.rank, state.world_size,
        "parameter " + parameter_text(state.index, state.names) + " got more gradients than in the first step",
        "leave static_graph off, and set find_unused_parameters if some steps use fewer parameters" +
            naming_hint(state.names));
  }
  return "Your training graph has changed in this iteration, e.g., one parameter is unused in first iteration, but "
         "then got "
         "used in the second iteration. this is not compatible with static_graph set to True.";
}

std::string failed_before_message(Audience audience, const std::string& failure) {
  return fmt::format("[cohort] this {} cannot go on: an earlier step failed\n{}",
                     audience == Audience::kReducer ? "ddp::Reducer" : "DistributedDataParallel",
                     comm::without_mark(failure));
}

std::string none_unused_message(Audience audience) {
  if (audience == Audience::kReducer) {
    return "ReducerOptions::find_unused_parameters is set, but the tensors given to ddp::Reducer::prepare() depend on "
           "every "
           "parameter. The search walks the autograd graph in every step; turn it off if all parameters always take "
           "part.";
  }
  return "find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters "
         "in the forward pass. The search walks the autograd graph in every iteration; turn it off if all "
         "parameters always take part.";
}

std::string create_graph_message() {
  return "Using DistributedDataParallel with create_graph=True is not well-supported: gradients are averaged over the "
         "ranks, but "
         "gradients of these gradients are not averaged. Average them yourself, for example with all_reduce.";
}

std::string different_parameters_message(int rank, int world_size, std::string reason) {
  const std::string of_modules = "DDP expects same model across all ranks, but ";
  if (reason.starts_with(of_modules)) reason = reason.substr(of_modules.size());
  return reducer_text(
      "the ranks were given different parameters", rank, world_size, reason,
      "give the constructor the same number of parameters on every rank, with the same sizes and strides and "
      "in the same order");
}

}  // namespace cohort::ddp
