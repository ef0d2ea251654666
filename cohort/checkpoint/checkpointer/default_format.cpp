#include "cohort/checkpoint/checkpointer/default_format.h"

#include <c10/util/Exception.h>

#include "cohort/base/file/open_file.h"
#include "cohort/checkpoint/sharded/sharded_checkpoint.h"
#include "cohort/comm/error/throw_error.h"

namespace cohort::checkpoint {
namespace {

// Returns this rank's share of all files, for the manifest. Which rank wrote them does not matter: they are complete and on disk.
std::vector<std::string> own_share(const std::string& folder, const Group& group) {
  const std::vector<std::string> names =
      comm::or_throw(base::names_in_folder(folder), "cannot list the folder \"" + folder + "\"");
  std::vector<std::string> share;
  const size_t first = group ? get_rank(group) : 0, step = group ? get_world_size(group) : 1;
  for (size_t i = first; i < names.size(); i += step) share.push_back(names[i]);
  return share;
}

}  // namespace

CheckpointFormat default_format() {
  CheckpointFormat format;
  format.save = [](const ShardedStateDict& state, const std::string& folder, const Group& group) {
    save_sharded(state, folder, {.process_group = group, .no_dist = group == nullptr});
    return own_share(folder, group);
  };
  format.load = [](ShardedStateDict& state, const std::string& folder, const Group& group) {
    load_sharded(state, folder, {.process_group = group, .no_dist = group == nullptr});
  };
  return format;
}

}  // namespace cohort::checkpoint
