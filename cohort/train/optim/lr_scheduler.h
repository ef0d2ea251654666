/// Learning-rate schedulers: torch.optim.lr_scheduler's. scheduler_base.h says how they are used.
#pragma once

#include "cohort/train/optim/combined_schedulers.h"
#include "cohort/train/optim/cosine_schedulers.h"
#include "cohort/train/optim/cycle_schedulers.h"
#include "cohort/train/optim/factor_schedulers.h"
#include "cohort/train/optim/reduce_on_plateau.h"
#include "cohort/train/optim/scheduler_base.h"
#include "cohort/train/optim/swa_lr.h"
