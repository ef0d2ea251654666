// Replaces cuSOLVER's header: declares only what LibTorch's headers use.
#pragma once
#include "cusolver_common.h"
typedef struct cusolverDnContext* cusolverDnHandle_t;
