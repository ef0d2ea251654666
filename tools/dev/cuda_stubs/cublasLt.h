// Replaces cuBLAS's header: declares only what LibTorch's headers use.
#pragma once
typedef struct cublasLtContext* cublasLtHandle_t;
