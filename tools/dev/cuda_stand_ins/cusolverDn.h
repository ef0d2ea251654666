// Stands in for cuSOLVER's header: what LibTorch's headers name of it.
#pragma once
#include "cusolver_common.h"
typedef struct cusolverDnContext* cusolverDnHandle_t;
