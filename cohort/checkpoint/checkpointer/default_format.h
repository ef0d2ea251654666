/// The default format of a Checkpointer: save_sharded and load_sharded.
#pragma once

#include "cohort/checkpoint/checkpointer/checkpointer.h"

namespace cohort::checkpoint {

CheckpointFormat default_format();

}  // namespace cohort::checkpoint
