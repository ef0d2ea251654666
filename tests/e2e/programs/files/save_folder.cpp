// save_folder ROOT STEP METRIC: saves a checkpoint of a step, with one file, as a Checkpointer does. METRIC "-": none.
#include <cstdlib>
#include <iostream>
#include <string>

#include "cohort/base/file/atomic_file.h"
#include "cohort/files/checkpoints/checkpoint_draft.h"

int main(int argc, char** argv) {
  using namespace cohort;
  if (argc != 4) return 2;
  auto draft = files::CheckpointDraft::begin(argv[1], std::atoll(argv[2]));
  if (!draft) {
    std::cerr << draft.error().describe() << '\n';
    return 1;
  }
  const auto written = base::write_file_atomically(draft->folder() + "/weights", "step " + std::string(argv[2]));
  files::Manifest manifest{.saved_at = 1'700'000'000, .num_ranks = 2};
  if (std::string(argv[3]) != "-") manifest.metric = std::atof(argv[3]);
  const auto published = written ? draft->publish(manifest) : base::Result<std::string>(written.error());
  if (!published) std::cerr << published.error().describe() << '\n';
  return published ? 0 : 1;
}
