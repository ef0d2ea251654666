/// The Python names that plain values and tensors are made with.
#pragma once

#include "cohort/comm/pickle/unpickle.h"

namespace cohort::comm {

UnpicklerNames plain_names();

}  // namespace cohort::comm
