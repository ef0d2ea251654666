#include "cohort/dtensor/api/dtensor.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/custom_function.h>

#include <sstream>
#include <utility>

#include "cohort/comm/agreement/agreement.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/dtensor/api/ready.h"
#include "cohort/dtensor/wrapper/full_tensor.h"
#include "cohort/dtensor/wrapper/redistributed_view.h"
#include "cohort/dtensor/wrapper/redistribution.h"
#include "cohort/dtensor/wrapper/wrapper.h"
#include "cohort/mesh/mesh_layout.h"
#include "cohort/mesh/purpose.h"

namespace cohort {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;
using Grads = std::optional<Placements>;

// autograd::Function only finds arguments of exactly this type.
const at::Tensor& as_variable(const DTensor& tensor) { return tensor; }

// The gradient of a Partial tensor is replicated: every partial value has the same gradient.
Placements gradient_placements(const Placements& placements) {
  Placements result;
  for (const auto& placement : placements) {
    result.push_back(placement.is_partial() ? Placement(Replicate()) : placement);
  }
  return result;
}

// The state that backward needs.
struct Way : torch::CustomClassHolder {
  Way(DeviceMesh mesh, Placements placements) : mesh(std::move(mesh)), placements(std::move(placements)) {}
  DeviceMesh mesh;
  Placements placements;  ///< the gradient's placements
  std::vector<int64_t> shape = {};
  std::optional<at::ScalarType> dtype = {};       ///< the gradient's dtype
  std::optional<at::ScalarType> comm_dtype = {};  ///< the dtype in which it is redistributed
};

void keep(AutogradContext* context, c10::intrusive_ptr<Way> way) {
  context->saved_data["way"] = c10::IValue::make_capsule(std::move(way));
  context->set_materialize_grads(false);
}

c10::intrusive_ptr<Way> kept(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<Way>(context->saved_data["way"].toCapsule());
}

// A gradient may be plain, such as zeros made by autograd: all ranks have the same.
DTensor as_dtensor(const at::Tensor& gradient, const DeviceMesh& mesh) {
  return is_dtensor(gradient) ? DTensor(gradient) : DTensor::from_local(gradient, mesh, dtensor::replicated(mesh));
}

struct Moved : torch::autograd::Function<Moved> {
  static Variable forward(AutogradContext* context, const Variable& tensor, const Placements& placements,
                          const RedistributeOptions& options) {
    const auto& data = dtensor::dtensor_data(tensor);
    dtensor::follow_tensor(data);
    auto way = c10::make_intrusive<Way>(data.mesh, data.placements);
    way->dtype = tensor.scalar_type();
    way->comm_dtype = options.backward_dtype.value_or(tensor.scalar_type());
    keep(context, std::move(way));
    const auto local = data.local.to(options.forward_dtype.value_or(tensor.scalar_type()));
    const bool is_in_mesh = data.mesh.coordinate().has_value();
    auto result =
        is_in_mesh ? dtensor::redistributed(local, data.mesh, data.placements, placements, tensor.sizes()) : local;
    const bool is_shared = result.is_same(data.local);
    const bool stays_own = data.is_own && dtensor::has_partial(placements);
    // On axes of one rank nothing moves. The user may write a result that is not Partial, so it must not share a Partial's
    // memory.
    if (is_shared) result = data.is_own && !stays_own ? result.clone() : result.detach();
    auto wrapper = dtensor::make_dtensor(std::move(result), data.mesh, placements, tensor.sizes(), tensor.strides());
    dtensor::dtensor_data(wrapper).is_own = is_shared && stays_own;
    return wrapper;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (!gradients[0].defined()) return {{}, {}, {}};
    const auto way = kept(context);
    const auto gradient = as_dtensor(gradients[0], way->mesh);
    // A replicated gradient stays replicated: a Partial would have to be reduced once more.
    auto to = way->placements;
    for (size_t axis = 0; axis < to.size(); ++axis) {
      if (to[axis].is_partial() && !gradient.placements()[axis].is_partial()) to[axis] = Replicate();
    }
    const RedistributeOptions options{.forward_dtype = way->comm_dtype, .backward_dtype = {}};
    return {apply(as_variable(gradient), to, options).to(*way->dtype), {}, {}};
  }
};

struct FromLocal : torch::autograd::Function<FromLocal> {
  static Variable forward(AutogradContext* context, const Variable& local, const mesh::ShardSpec& spec,
                          const Grads& grads) {
    keep(context, c10::make_intrusive<Way>(spec.mesh(), grads.value_or(gradient_placements(spec.placements()))));
    return dtensor::make_dtensor(local.detach(), spec.mesh(), spec.placements(), spec.shape(), spec.stride());
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (!gradients[0].defined()) return {{}, {}, {}};
    const auto way = kept(context);
    const auto gradient = as_dtensor(gradients[0], way->mesh);
    return {DTensor(Moved::apply(as_variable(gradient), way->placements, RedistributeOptions())).to_local(), {}, {}};
  }
};

struct ToLocal : torch::autograd::Function<ToLocal> {
  static Variable forward(AutogradContext* context, const Variable& tensor, const Grads& grads) {
    const auto& data = dtensor::dtensor_data(tensor);
    dtensor::follow_tensor(data);
    auto way = c10::make_intrusive<Way>(data.mesh, grads.value_or(gradient_placements(data.placements)));
    way->shape = tensor.sizes().vec();
    keep(context, std::move(way));
    return dtensor::local_for_caller(data);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (!gradients[0].defined()) return {{}, {}};
    const auto way = kept(context);
    const mesh::ShardSpec spec(way->mesh, way->placements, way->shape, gradients[0].scalar_type());
    return {FromLocal::apply(gradients[0], spec, Grads()), {}};
  }
};

// Returns the global shape if all ranks have local tensors of this size.
std::vector<int64_t> global_shape(const at::Tensor& local, const DeviceMesh& mesh, const Placements& placements) {
  auto shape = local.sizes().vec();
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (placements[axis].is_shard_like()) shape.at(placements[axis].dim()) *= mesh.size(static_cast<int64_t>(axis));
  }
  return shape;
}

mesh::ShardSpec spec_of_local(const at::Tensor& local, const DeviceMesh& mesh, const Placements& placements,
                              const FromLocalOptions& options) {
  TORCH_CHECK(options.shape.empty() == options.stride.empty(), "Found shape:", mesh::tuple_text(options.shape),
              ", stride:", mesh::tuple_text(options.stride), ". Please pass both shape and stride at the same time.");
  TORCH_CHECK_VALUE(static_cast<int64_t>(placements.size()) == mesh.ndim(),
                    "`placements` must have the same length as `device_mesh.ndim`! Found placements length: ",
                    placements.size(), ", and device_mesh.ndim: ", mesh.ndim(), ".");
  const auto dtype = local.scalar_type();
  if (!options.shape.empty()) return {mesh, placements, options.shape, dtype, options.stride};
  auto shape = global_shape(local, mesh, mesh::normalize_placements(placements, local.dim()));
  const auto stride = mesh::compute_local_stride(local.strides(), shape);
  return {mesh, placements, std::move(shape), dtype, stride};
}

DTensor leaf_of(const at::Tensor& local, const mesh::ShardSpec& spec, bool requires_grad) {
  dtensor::make_ready();
  DTensor leaf(dtensor::make_dtensor(local.detach(), spec.mesh(), spec.placements(), spec.shape(), spec.stride()));
  leaf.set_requires_grad(requires_grad);
  return leaf;
}

// Checks that all ranks of the mesh have the same description, and sets replicas to the first rank's values.
at::Tensor checked(const at::Tensor& local, const mesh::ShardSpec& spec) {
  const comm::CalledFor purpose(mesh::kRedistribution);
  const auto groups = spec.mesh().groups();
  comm::agree({.function = "DTensor::from_local",
               .outcome = "no DTensor was made",
               .hint = "set options.shape and options.stride if shards have different sizes",
               .facts = {{"the global shape", mesh::tuple_text(spec.shape())}}},
              groups);
  auto result = local;
  for (size_t axis = 0; axis < groups.size(); ++axis) {
    if (!spec.placements()[axis].is_replicate()) continue;
    result = result.contiguous();
    if (result.numel() > 0) broadcast(result.detach(), group_rank(0), {.group = groups[axis]});
  }
  return result;
}

}  // namespace

bool is_dtensor(const at::Tensor& tensor) { return dtensor::is_dtensor(tensor); }

DTensor::DTensor(at::Tensor tensor) : at::Tensor(std::move(tensor)) {
  TORCH_CHECK_TYPE(
      is_dtensor(*this), "[cohort] DTensor: ", defined() ? "this tensor is not a DTensor" : "this tensor is undefined",
      "\n  hint: make a DTensor from a full tensor with distribute_tensor(x, mesh, placements), or from shards with "
      "DTensor::from_local");
}

DTensor::DTensor(const at::Tensor& local, const mesh::ShardSpec& spec) {
  dtensor::check_local_shape(local, spec);
  at::Tensor::operator=(leaf_of(local, spec, local.requires_grad()));
}

DTensor DTensor::from_local(const at::Tensor& local, const DeviceMesh& mesh, const Placements& placements,
                            const FromLocalOptions& options) {
  dtensor::make_ready();
  const auto spec = spec_of_local(local, mesh, placements, options);
  if (!mesh.coordinate()) return DTensor(FromLocal::apply(local.new_empty({0}), spec, options.grad_placements));
  const auto used = options.run_check ? checked(local, spec) : local;
  dtensor::check_local_shape(used, spec);
  return DTensor(FromLocal::apply(used, spec, options.grad_placements));
}

at::Tensor DTensor::to_local(const std::optional<Placements>& grad_placements) const {
  return ToLocal::apply(as_variable(*this), grad_placements);
}

DTensor DTensor::redistribute(const Placements& placements, const RedistributeOptions& options) const {
  const mesh::ShardSpec to(device_mesh(), placements, sizes().vec(), scalar_type());
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    TORCH_CHECK(!placements[axis].is_partial() || placements[axis] == this->placements()[axis],
                "Can not redistribute from ", this->placements()[axis].short_text(), " to ",
                placements[axis].short_text(), ", redistributing to Partial is for internal use only!");
  }
  return DTensor(Moved::apply(as_variable(*this), to.placements(), options));
}

at::Tensor DTensor::full_tensor(const std::optional<Placements>& grad_placements) const {
  return redistribute(dtensor::replicated(device_mesh())).to_local(grad_placements);
}

const Placements& DTensor::placements() const { return dtensor::dtensor_data(*this).placements; }

const DeviceMesh& DTensor::device_mesh() const { return dtensor::dtensor_data(*this).mesh; }

mesh::ShardSpec DTensor::spec() const { return dtensor::spec_of(*this); }

std::string DTensor::to_string() const {
  std::ostringstream text;
  text << "DTensor(local_tensor=" << dtensor::dtensor_data(*this).local << ", device_mesh=" << device_mesh()
       << ", placements=" << cohort::to_string(placements()) << ")";
  return text.str();
}

DTensor distribute_tensor(const at::Tensor& tensor, const DeviceMesh& mesh, const Placements& placements,
                          std::optional<int> src_data_rank) {
  TORCH_CHECK(tensor.is_leaf(),
              "`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!");
  const auto wanted = placements.empty() ? dtensor::replicated(mesh) : placements;
  const mesh::ShardSpec spec(mesh, wanted, tensor.sizes().vec(), tensor.scalar_type(), tensor.strides().vec());
  if (!is_dtensor(tensor)) {
    return leaf_of(dtensor::scattered(tensor, spec, src_data_rank), spec, tensor.requires_grad());
  }
  DTensor given(tensor);
  TORCH_CHECK_VALUE(given.device_mesh() == mesh, "Cannot distribute a DTensor with device mesh ", given.device_mesh(),
                    " to a different device mesh ", mesh, ".");
  TORCH_CHECK_VALUE(given.placements() == spec.placements(), "Cannot distribute a DTensor with placements ",
                    cohort::to_string(given.placements()), " to a different placements [", c10::Join(", ", wanted),
                    "]. do you want to call `redistribute` instead?");
  return given;
}

}  // namespace cohort
