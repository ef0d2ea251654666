/// The questions of `cohort-bench`: one row in main.cpp and one folder each; related ones share a folder.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/support/report.h"

namespace cohort::bench {

struct Settings {
  /// Answer in under 45 s, with fewer repetitions.
  bool is_quick = false;
  /// How often launch, recovery, store, rendezvous, dataloader, checkpoint, optimizer, models and train measure each side. 0
  /// means the question's own choice.
  int num_rounds = 0;
  int rounds(int full, int quick) const { return num_rounds > 0 ? num_rounds : is_quick ? quick : full; }
  /// Measures only cases with this name. If empty, all cases. For ddp-step, fsdp-step, python, allocator, dataloader, checkpoint,
  /// optimizer, models and train.
  std::string only_case;
  /// Operations, sizes, dtypes and numbers of ranks of collectives, as on the command line. If empty, the question's own choice.
  std::vector<std::string> ops, sizes, dtypes, ranks;
  /// The name of our backend.
  std::string backend = "shm";
  /// The allocator of all ranks of all sides, for ddp-step, python and train.
  std::string allocator = "default";
  /// fsdp-step: "libtorch" or "fused".
  std::string optimizer = "libtorch";
  /// This program, which is started again as a rank, and its folder.
  std::string program;
  std::string program_folder;
};

struct Question {
  const char* name;
  const char* summary;
  /// Throws std::exception if it cannot be answered.
  std::vector<Row> (*run)(const Settings& settings);
  /// Prints its rows. If null, print_table does.
  void (*print)(const std::vector<Row>& rows) = nullptr;
};

std::vector<Row> run_allocator(const Settings& settings);
std::vector<Row> run_checkpoint(const Settings& settings);
std::vector<Row> run_collectives(const Settings& settings);
void print_collectives(const std::vector<Row>& rows);
std::vector<Row> run_compile_time(const Settings& settings);
std::vector<Row> run_activation_checkpointing(const Settings& settings);
std::vector<Row> run_dataloader(const Settings& settings);
std::vector<Row> run_data_parallel(const Settings& settings);
std::vector<Row> run_ddp_overhead(const Settings& settings);
std::vector<Row> run_dtensor_overhead(const Settings& settings);
std::vector<Row> run_ddp_step(const Settings& settings);
std::vector<Row> run_fused_step(const Settings& settings);
std::vector<Row> run_fsdp_step(const Settings& settings);
std::vector<Row> run_optimizer(const Settings& settings);
std::vector<Row> run_python(const Settings& settings);
void print_python(const std::vector<Row>& rows);
std::vector<Row> run_pipeline(const Settings& settings);
std::vector<Row> run_models(const Settings& settings);
std::vector<Row> run_launch(const Settings& settings);
std::vector<Row> run_queued(const Settings& settings);
std::vector<Row> run_recovery(const Settings& settings);
std::vector<Row> run_store(const Settings& settings);
std::vector<Row> run_rendezvous(const Settings& settings);
std::vector<Row> run_tensor_parallel(const Settings& settings);
std::vector<Row> run_train(const Settings& settings);

/// First argument that makes the program a rank of ddp-step.
inline constexpr const char* kDdpStepRank = "--ddp-step-rank";
/// Arguments: our backend, rank, the pipe that commands come from, init method. Returns the exit code.
int run_ddp_step_rank(const std::vector<std::string>& arguments);

/// First argument that makes the program a rank of fsdp-step.
inline constexpr const char* kFsdpStepRank = "--fsdp-step-rank";
/// Arguments: number of ranks, our backend, rank, the pipe that commands come from, init method. Returns the exit code.
int run_fsdp_step_rank(const std::vector<std::string>& arguments);

/// First argument that makes the program a rank of pipeline.
inline constexpr const char* kPipelineRank = "--pipeline-rank";
/// Arguments: number of ranks, backend, rank, the pipe that commands come from, init method. Returns the exit code.
int run_pipeline_rank(const std::vector<std::string>& arguments);

/// First argument that makes the program a process of allocator.
inline constexpr const char* kAllocatorRank = "--allocator-rank";
/// Arguments: rank, the pipe that commands come from, init method. Returns the exit code.
int run_allocator_rank(const std::vector<std::string>& arguments);

/// First argument that makes the program a process of dataloader.
inline constexpr const char* kDataloaderRank = "--dataloader-rank";
/// Arguments: rank, the pipe that commands come from, init method. Returns the exit code.
int run_dataloader_rank(const std::vector<std::string>& arguments);

/// First argument that makes the program a rank of checkpoint.
inline constexpr const char* kCheckpointRank = "--checkpoint-rank";
/// Arguments: number of ranks, rank, the pipe that commands come from, init method. Returns the exit code.
int run_checkpoint_rank(const std::vector<std::string>& arguments);

/// First argument that makes the program the process of optimizer.
inline constexpr const char* kOptimizerRank = "--optimizer-rank";
/// Arguments: rank, the pipe that commands come from, init method. Returns the exit code.
int run_optimizer_rank(const std::vector<std::string>& arguments);

/// First argument that makes the program a rank of collectives.
inline constexpr const char* kCollectivesRank = "--collectives-rank";
/// Arguments: number of ranks, our backend, rank, the pipe that commands come from, init method. Returns the exit code.
int run_collectives_rank(const std::vector<std::string>& arguments);

/// First argument that makes the program a rank of queued.
inline constexpr const char* kQueuedRank = "--queued-rank";
/// Arguments: our backend, rank, the pipe that commands come from, init method. Returns the exit code.
int run_queued_rank(const std::vector<std::string>& arguments);

/// First argument that makes the program a rank of tensor-parallel.
inline constexpr const char* kTensorParallelRank = "--tensor-parallel-rank";
/// Arguments: number of ranks, our backend, rank, the pipe that commands come from, init method. Returns the exit code.
int run_tensor_parallel_rank(const std::vector<std::string>& arguments);

/// First arguments that make the program a rank of train: with a hand-written loop, or with a Trainer.
inline constexpr const char* kTrainRank = "--train-rank";
inline constexpr const char* kTrainerRank = "--trainer-rank";
/// Arguments: our backend, rank, the pipe that commands come from, init method. Return the exit code.
int run_train_rank(const std::vector<std::string>& arguments);
int run_trainer_rank(const std::vector<std::string>& arguments);

/// First argument that makes the program LibTorch's store, until it is killed.
inline constexpr const char* kTorchStoreServer = "--torch-store-server";
int run_torch_store_server();

}  // namespace cohort::bench
