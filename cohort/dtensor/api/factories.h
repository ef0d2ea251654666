/// DTensors made where they lie: each rank makes its part.
///
///     const DTensor mask = cohort::dtensor::zeros({1024, 4096}, mesh, {Shard(1)}, at::kFloat);
///
/// Without placements the tensor is replicated. rand and randn give what LibTorch's own give for the seed, however the tensor
/// lies:
/// every rank draws all of it (Python promises that on GPUs only). Throws what ShardSpec throws.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Scalar.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/ArrayRef.h>

#include <optional>

#include "cohort/dtensor/api/dtensor.h"
#include "cohort/export.h"

namespace cohort::dtensor {

/// `options`: dtype and requires_grad; the device is the mesh's.
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
