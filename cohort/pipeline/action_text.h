/// Actions as texts, as Python writes them: `2F0`, `1UNSHARD`, `3SEND_F1`, `(2F1;1B0)OVERLAP_F_B`; an idle one is "".
#pragma once

#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/pipeline/action.h"

namespace cohort::pipeline {

/// "F", "OVERLAP_F_B".
std::string_view kind_text(ActionKind kind);
std::string text_of(const Action& action);

/// The reverse; blanks around are ignored. Unlike Python it refuses what follows a complete action, microbatches of actions that
/// have none, and actions without those they need.
base::Result<Action> parse_action(std::string_view text);

/// Python's grid of steps and ranks, newline at the end. `marked_step`: its line ends in " <-- ERROR HERE"; -1: none. Of more
/// than a quarter of a million cells the first ones, and how many steps are left out.
std::string order_table(const PipelineOrder& order, long long marked_step = -1);

}  // namespace cohort::pipeline
