#include "cohort/comm/group/job_warning.h"

#include "cohort/base/log/log.h"
#include "cohort/comm/group/process_group.h"

namespace cohort::comm {

void warn_once_per_job(const std::string& message) {
  if (!is_initialized() || get_rank() == 0) base::warn_once(message);
}

}  // namespace cohort::comm
