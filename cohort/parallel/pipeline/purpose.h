/// The purposes for which pipelines call collectives; see comm/call/purpose.h.
#pragma once

#include "cohort/comm/call/purpose.h"

namespace cohort::pipeline {

inline const comm::Purpose kStepAgreement(18, "the agreement of a pipeline's ranks in a step");

}  // namespace cohort::pipeline
