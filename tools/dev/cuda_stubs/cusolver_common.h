// Replaces cuSOLVER's header: declares only what LibTorch's headers use.
#pragma once
typedef enum { CUSOLVER_STATUS_SUCCESS = 0 } cusolverStatus_t;
