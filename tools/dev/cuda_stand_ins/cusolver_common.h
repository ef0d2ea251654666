// Stands in for cuSOLVER's header: what LibTorch's headers name of it.
#pragma once
typedef enum { CUSOLVER_STATUS_SUCCESS = 0 } cusolverStatus_t;
