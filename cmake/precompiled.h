// The precompiled header of every target that uses LibTorch: tensors, autograd and c10d. Sources still include what they use;
// this file only makes that cheap. It must stay slim: templates that a header leaves pending are instantiated again by every
// source that uses it, so torch/nn.h and torch/optim.h would cost each of them 9 s.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>
