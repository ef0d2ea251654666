/// The object that stands for "this process is not a member": a group that no collective accepts.
#pragma once

#include "cohort/comm/group/process_group.h"

namespace cohort::comm {

const Group& non_member();

}  // namespace cohort::comm
