// Compiled by compile-time as its second case: the same program with the umbrella header.
#include "cohort/cohort.h"
#include "hello_ddp.cpp"
