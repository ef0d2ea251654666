/// The version of Cohort: the one place that names it. CMake reads this line.
#pragma once

#define COHORT_VERSION "0.1.0"
