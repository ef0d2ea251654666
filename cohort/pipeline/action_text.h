/// Texts of actions, as Python writes them: `2F0`, `1UNSHARD`, `3SEND_F1`, `(2F1;1B0)OVERLAP_F_B`; an idle action is "".
#pragma once

#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/pipeline/action.h"

namespace cohort::pipeline {

/// Returns the kind as a text: "F", "OVERLAP_F_B".
std::string_view kind_text(ActionKind kind);
std::string text_of(const Action& action);

/// Parses an action and ignores blanks around it. Unlike Python it refuses text after a complete action, microbatches of actions
/// that have none, and actions without a microbatch that they need.
base::Result<Action> parse_action(std::string_view text);

/// Returns Python's table of steps and ranks, with a newline at the end. The line of `marked_step` ends in " <-- ERROR HERE"; -1
/// marks no line. If there are more than a quarter of a million cells, the table has the first steps and says how many are left
/// out.
std::string order_table(const PipelineOrder& order, long long marked_step = -1);

}  // namespace cohort::pipeline
