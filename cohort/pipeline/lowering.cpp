#include "cohort/pipeline/lowering.h"

#include <algorithm>
#include <list>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cohort/pipeline/action_key.h"

namespace cohort::pipeline {
namespace {

// The next stages from each place of a list on, in the order in which they occur.
class StagesAhead {
 public:
  struct Entry {
    int stage;
    size_t place;  ///< the place of its next action
  };

  // Moves to the previous place.
  void move_to(const Action& action, size_t place) {
    std::vector<int> stages;
    for_each_part(action, [&](const Action& part) { stages.push_back(part.stage); });
    for (size_t i = stages.size(); i-- > 0;) move_to_front({stages[i], place});
  }

  // Returns `count` stages. Stages of one overlapped action stay together.
  std::vector<int> next(int count) const {
    std::vector<int> stages;
    size_t last_place = 0;
    for (const Entry& entry : entries_) {
      if (static_cast<int>(stages.size()) >= count && entry.place != last_place) break;
      stages.push_back(entry.stage);
      last_place = entry.place;
    }
    return stages;
  }

 private:
  void move_to_front(Entry entry) {
    if (const auto found = where_.find(entry.stage); found != where_.end()) entries_.erase(found->second);
    entries_.push_front(entry);
    where_[entry.stage] = entries_.begin();
  }

  std::list<Entry> entries_;
  std::unordered_map<int, std::list<Entry>::iterator> where_;
};

std::vector<std::vector<int>> plan_ahead(const ActionList& list, int count) {
  std::vector<std::vector<int>> ahead(list.size());
  StagesAhead stages;
  for (size_t place = list.size(); place-- > 0;) {
    if (list[place].kind == ActionKind::kIdle) continue;
    stages.move_to(list[place], place);
    ahead[place] = stages.next(count);
  }
  return ahead;
}

}  // namespace

ActionList add_reduce_grad(const ActionList& list, int num_microbatches) {
  ActionList result;
  std::unordered_map<int, int> num_backwards;
  for (const Action& action : list) {
    if (action.kind == ActionKind::kIdle) continue;
    result.push_back(action);
    for_each_part(action, [&](const Action& part) {
      const bool completes = part.kind == ActionKind::kBackwardWeight || part.kind == ActionKind::kFullBackward;
      if (completes && ++num_backwards[part.stage] == num_microbatches) {
        result.push_back({ActionKind::kReduceGrad, part.stage});
      }
    });
  }
  return result;
}

ActionList add_unshard_reshard(const ActionList& list, int max_active_stages) {
  ActionList result;
  const auto ahead = plan_ahead(list, max_active_stages);
  std::set<int> active;
  for (size_t place = 0; place < list.size(); ++place) {
    if (list[place].kind == ActionKind::kIdle) continue;
    const std::vector<int>& wanted = ahead[place];
    for (auto stage = active.begin(); stage != active.end();) {
      if (std::find(wanted.begin(), wanted.end(), *stage) != wanted.end()) {
        ++stage;
        continue;
      }
      result.push_back({ActionKind::kReshard, *stage});
      stage = active.erase(stage);
    }
    for (const int stage : wanted) {
      if (active.insert(stage).second) result.push_back({ActionKind::kUnshard, stage});
    }
    result.push_back(list[place]);
  }
  for (const int stage : active) result.push_back({ActionKind::kReshard, stage});
  return result;
}

base::Result<PipelineOrder> add_communication(const PipelineOrder& order, const StageRanks& stage_ranks,
                                              int num_microbatches) {
  PipelineOrder lowered;
  for (const ActionList& list : order) {
    lowered.push_back(add_reduce_grad(add_unshard_reshard(list), num_microbatches));
  }
  return add_send_receive(lowered, stage_ranks);
}

ActionList without_overlaps(const ActionList& list, const StageRanks& stage_ranks) {
  ActionList result;
  for (auto next = list.begin(); next != list.end();) {
    const Action& action = *next++;
    if (action.kind != ActionKind::kOverlap) {
      result.push_back(action);
      continue;
    }
    const auto end = std::find_if(next, list.end(), [](const Action& each) { return !is_send(each.kind); });
    ActionList moved, sends;
    for (const Action& part : action.parts) {
      moved.push_back(part);
      const auto send = send_of(part, stage_ranks);
      if (!send || std::find(next, end, *send) == end) continue;
      moved.push_back(*send);
      sends.push_back(*send);
    }
    const bool keeps_order = std::equal(next, end, sends.begin(), sends.end());
    const ActionList& parts = keeps_order ? moved : action.parts;
    result.insert(result.end(), parts.begin(), parts.end());
    if (keeps_order) next = end;
  }
  return result;
}

}  // namespace cohort::pipeline
