// The C++ code that the pages of docs/guide show, as one program:
//
//   build/bin/cohort run --standalone --nproc-per-node 2 build/bin/examples/guide_pieces PAGE
#include <cstdio>
#include <map>
#include <string>

#include "guide.h"

int main(int argc, char** argv) {
  const std::map<std::string, void (*)()> pages = {{"collectives", guide::run_collectives},
                                                   {"ddp", guide::run_ddp},
                                                   {"data", guide::run_data},
                                                   {"datasets", guide::run_datasets},
                                                   {"checkpoints", guide::run_checkpoints},
                                                   {"checkpointer", guide::run_checkpointer},
                                                   {"recovery", guide::run_recovery},
                                                   {"sharded_checkpoints", guide::run_sharded_checkpoints},
                                                   {"data_parallel", guide::run_data_parallel},
                                                   {"optimizers", guide::run_optimizers},
                                                   {"device_mesh", guide::run_device_mesh},
                                                   {"tensor_parallel", guide::run_tensor_parallel},
                                                   {"context_parallel", guide::run_context_parallel},
                                                   {"pipeline", guide::run_pipeline},
                                                   {"dtensor", guide::run_dtensor},
                                                   {"together", guide::run_together},
                                                   {"fsdp", guide::run_fsdp},
                                                   {"memory", guide::run_memory},
                                                   {"logging", guide::run_logging},
                                                   {"models", guide::run_models},
                                                   {"activation_checkpointing", guide::run_activation_checkpointing},
                                                   {"mixed_precision", guide::run_mixed_precision},
                                                   {"schedules_and_metrics", guide::run_schedules_and_metrics},
                                                   {"trainer", guide::run_trainer}};
  const auto page = pages.find(argc == 2 ? argv[1] : "");
  if (page == pages.end()) {
    std::fprintf(
        stderr,
        "usage: guide_pieces PAGE, where PAGE is one of collectives, ddp, data, datasets, checkpoints, checkpointer, "
        "sharded_checkpoints, "
        "recovery, data_parallel, optimizers, device_mesh, tensor_parallel, context_parallel, pipeline, dtensor, fsdp, "
        "together, "
        "memory, "
        "logging, "
        "mixed_precision, "
        "activation_checkpointing, models, schedules_and_metrics or trainer\n");
    return 2;
  }
  page->second();
  std::printf("%s: done\n", argv[1]);
}
