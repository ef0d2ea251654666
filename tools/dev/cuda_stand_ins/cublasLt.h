// Stands in for cuBLAS's header: what LibTorch's headers name of it.
#pragma once
typedef struct cublasLtContext* cublasLtHandle_t;
