// What compile-time compiles as its second case: the same program with the header that has everything.
#include "cohort/cohort.h"
#include "hello_ddp.cpp"
