/// The object that new_group returns on a rank outside of the group: no collective accepts it.
#pragma once

#include "cohort/comm/group/process_group.h"

namespace cohort::comm {

const Group& non_member();

}  // namespace cohort::comm
