// The precompiled header of tests with LibTorch, for Clang, which instantiates the templates of a header once.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional.h>
#include <torch/nn/init.h>
#include <torch/nn/modules.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "precompiled.h"
