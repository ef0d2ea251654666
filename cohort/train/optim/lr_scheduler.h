/// Learning-rate schedulers of torch.optim.lr_scheduler. scheduler_base.h shows how to use them.
#pragma once

#include "cohort/train/optim/combined_schedulers.h"
#include "cohort/train/optim/cosine_schedulers.h"
#include "cohort/train/optim/cycle_schedulers.h"
#include "cohort/train/optim/factor_schedulers.h"
#include "cohort/train/optim/reduce_on_plateau.h"
#include "cohort/train/optim/scheduler_base.h"
#include "cohort/train/optim/swa_lr.h"
