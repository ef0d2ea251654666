// What cohort_precompile_headers() gives a user's target: what most training programs include. Sources still include what they
// use.
#pragma once
#include <cohort/cohort.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>
