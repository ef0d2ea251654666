// CUDA builds of LibTorch have this generated file; its CPU wheels lack it.
#pragma once
#define C10_CUDA_BUILD_SHARED_LIBS
