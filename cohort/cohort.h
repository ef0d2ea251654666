/// The headers that most training programs need, in one include.
///
/// It has process groups, collectives, messages and `spawn`; device meshes and placements; DistributedDataParallel, DataParallel,
/// Reducer, functional collectives and clip_grad_norm_; data loaders, samplers, and data sets of tensors and tokens;
/// state dicts, and checkpoints in one file.
///
/// It lacks all else: fully_shard, tensor, context and pipeline parallelism, DTensor, ActivationCheckpoint, SyncBatchNorm,
/// ZeroRedundancyOptimizer, Autocast and GradScaler, optimizers, schedulers and metrics, the Trainer, models, other data sets,
/// sharded checkpoints, DDP's communication hooks. Include their headers, or all of them with cohort/all.h. Narrower headers
/// compile faster.
#pragma once

#include "cohort/checkpoint/checkpointer/training_checkpoint.h"
#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/checkpoint/file/torch_file.h"
#include "cohort/checkpoint/state/state_dict.h"
#include "cohort/comm/collectives/coalescing.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/comm/collectives/point_to_point.h"
#include "cohort/comm/collectives/shm_empty.h"
#include "cohort/comm/group/device.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/comm/memory/shared_allocator.h"
#include "cohort/comm/process/expires.h"
#include "cohort/comm/process/share_memory.h"
#include "cohort/comm/process/spawn.h"
#include "cohort/comm/process/tensor_channel.h"
#include "cohort/comm/registry/backend_registry.h"
#include "cohort/comm/report/flight_recorder.h"
#include "cohort/comm/report/worker_server.h"
#include "cohort/data/datasets/tensor_dataset.h"
#include "cohort/data/datasets/token_dataset.h"
#include "cohort/data/loader/data_loader.h"
#include "cohort/data/samplers/distributed_sampler.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/placement.h"
#include "cohort/parallel/data_parallel/data_parallel.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/ddp/reducer.h"
#include "cohort/parallel/functional/functional.h"
#include "cohort/parallel/functional/functional_collectives.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/version.h"
