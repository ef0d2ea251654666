/// Everything a training program needs, in one include. Narrower headers compile faster.
#pragma once

#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/state_dict.h"
#include "cohort/comm/backend_registry.h"
#include "cohort/comm/coalescing.h"
#include "cohort/comm/collectives.h"
#include "cohort/comm/point_to_point.h"
#include "cohort/comm/process_group.h"
#include "cohort/comm/spawn.h"
#include "cohort/comm/subgroups.h"
#include "cohort/data/data_loader.h"
#include "cohort/data/distributed_sampler.h"
#include "cohort/data/tensor_dataset.h"
#include "cohort/data/token_dataset.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/ddp/reducer.h"
#include "cohort/version.h"
