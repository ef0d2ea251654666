// A CUDA build of LibTorch makes this file; its CPU wheels lack it.
#pragma once
#define C10_CUDA_BUILD_SHARED_LIBS
