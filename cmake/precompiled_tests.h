// The precompiled header of tests with LibTorch, for Clang, which instantiates the templates of a header once. GCC has precompiled.h.
#pragma once
#include "precompiled.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>
