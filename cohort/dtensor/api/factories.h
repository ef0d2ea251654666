/// Factories of DTensors: each rank makes only its local tensor.
///
///     const DTensor mask = cohort::dtensor::zeros({1024, 4096}, mesh, {Shard(1)}, at::kFloat);
///
/// If `placements` is empty, the tensor is replicated. rand and randn return the same values as LibTorch's functions for the
/// seed, whatever the placements: every rank draws all of them (Python guarantees this only on GPUs). Throws what ShardSpec
/// throws.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Scalar.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/ArrayRef.h>

#include <optional>

#include "cohort/dtensor/api/dtensor.h"
#include "cohort/export.h"

namespace cohort::dtensor {

/// `options`: dtype and requires_grad. The device is the mesh's.
COHORT_API DTensor zeros(c10::IntArrayRef shape, const DeviceMesh& mesh, const Placements& placements = {},
                         const at::TensorOptions& options = {});
COHORT_API DTensor ones(c10::IntArrayRef shape, const DeviceMesh& mesh, const Placements& placements = {},
                        const at::TensorOptions& options = {});
COHORT_API DTensor empty(c10::IntArrayRef shape, const DeviceMesh& mesh, const Placements& placements = {},
                         const at::TensorOptions& options = {});
COHORT_API DTensor full(c10::IntArrayRef shape, const c10::Scalar& value, const DeviceMesh& mesh,
                        const Placements& placements = {}, const at::TensorOptions& options = {});
COHORT_API DTensor rand(c10::IntArrayRef shape, const DeviceMesh& mesh, const Placements& placements = {},
                        const at::TensorOptions& options = {}, std::optional<at::Generator> generator = {});
COHORT_API DTensor randn(c10::IntArrayRef shape, const DeviceMesh& mesh, const Placements& placements = {},
                         const at::TensorOptions& options = {}, std::optional<at::Generator> generator = {});

}  // namespace cohort::dtensor
