#include "cohort/shm/report/group_trace.h"

namespace cohort::shm {

const char* name_of(CallRecord::State state) {
  switch (state) {
    case CallRecord::State::kScheduled:
      return "scheduled";
    case CallRecord::State::kStarted:
      return "started";
    case CallRecord::State::kCompleted:
      return "completed";
    case CallRecord::State::kFailed:
      return "failed";
  }
  return "";
}

const char* name_of(RankTrace::Presence presence) {
  switch (presence) {
    case RankTrace::Presence::kAbsent:
      return "never arrived";
    case RankTrace::Presence::kRuns:
      return "runs";
    case RankTrace::Presence::kLeft:
      return "has left the group";
    case RankTrace::Presence::kGone:
      return "is gone";
  }
  return "";
}

}  // namespace cohort::shm
