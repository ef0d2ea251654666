/// COHORT_API marks what libcohort.so exports. Everything else is hidden.
#pragma once

#define COHORT_API __attribute__((visibility("default")))
