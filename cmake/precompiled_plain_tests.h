// The precompiled header of tests without LibTorch, for Clang.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "precompiled_plain.h"
