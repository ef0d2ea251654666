// The code that the pages of docs/guide show, one function per page.
#pragma once

namespace guide {

void run_collectives();
void run_ddp();
void run_data();
void run_datasets();
void run_checkpoints();
void run_checkpointer();
void run_recovery();
void run_sharded_checkpoints();
void run_data_parallel();
void run_optimizers();
void run_device_mesh();
void run_tensor_parallel();
void run_context_parallel();
void run_pipeline();
void run_dtensor();
void run_together();
void run_fsdp();
void run_memory();
void run_models();
void run_logging();
void run_activation_checkpointing();
void run_mixed_precision();
void run_schedules_and_metrics();
void run_trainer();

}  // namespace guide
