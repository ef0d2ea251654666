/// with_layouts: wraps a module so that tensors are redistributed on their way in and out, for modules that are not children of a
/// torch::nn::Sequential: a full model, or a member of your own.
///
///     auto model = cohort::parallel::with_layouts(gpt, mesh["tp"], cohort::PrepareModuleInputOutput{
///         .input_layouts = {cohort::Replicate()}, .desired_input_layouts = {cohort::Shard(1)},     // each rank some positions
///         .output_layouts = {cohort::Shard(-1)}, .desired_output_layouts = {cohort::Replicate()}});
///     at::Tensor logits = model(tokens);                                                           // plain again
///
/// The wrapper takes the module's place, as DistributedDataParallel does, with the module's own names.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/parallel/fsdp/pass_arguments.h"
#include "cohort/parallel/module/signature.h"
#include "cohort/parallel/module/wrapper_base.h"
#include "cohort/parallel/tensor/input_output_hooks.h"

namespace cohort {

namespace parallel::detail {

/// The wrapper without forward.
template <class Net>
class HookedNet : public WrapperBase<Net> {
 public:
  HookedNet(std::shared_ptr<Net> net, InputOutputHooks hooks)
      : WrapperBase<Net>("WithLayouts", std::move(net)), hooks_(std::move(hooks)) {}

  template <class... Arguments>
  auto call(Arguments&&... arguments) {
    const auto run = [this](auto&&... each) { return this->module().forward(std::forward<decltype(each)>(each)...); };
    const auto enter = [this](std::vector<at::Tensor> tensors) { return hooks_.inputs(std::move(tensors)); };
    auto result = fsdp::with_exchanged_tensors(run, enter, std::forward<Arguments>(arguments)...);
    const auto tensors = hooks_.outputs(fsdp::tensors_in(result));
    size_t next = 0;
    return move_tensors(std::move(result), fsdp::PutTensors{&tensors, &next});
  }

 private:
  InputOutputHooks hooks_;
};

}  // namespace parallel::detail

}  // namespace cohort

namespace cohort::parallel {

template <class Net, class Signature = parallel::ForwardSignature<Net>>
class WithLayoutsImpl final : public parallel::WrapperWithForward<parallel::detail::HookedNet<Net>, Net, Signature> {
  using Base = parallel::WrapperWithForward<parallel::detail::HookedNet<Net>, Net, Signature>;

 public:
  using Base::Base;
};

template <class Net, class Signature = parallel::ForwardSignature<Net>>
class WithLayouts : public parallel::WrapperHolder<WithLayoutsImpl<Net, Signature>, Net> {
  using Impl = WithLayoutsImpl<Net, Signature>;
  using Holder = parallel::WrapperHolder<Impl, Net>;

 public:
  using Holder::Holder;
  /// Throws as parallel::InputOutputHooks.
  WithLayouts(std::shared_ptr<Net> net, const DeviceMesh& mesh, const InputOutputStyle& style)
      : Holder(std::make_shared<Impl>(std::move(net), parallel::InputOutputHooks(mesh, style))) {}
};

/// `net`: a holder, or a std::shared_ptr to a module. Layouts count the tensors among forward's arguments and results.
template <class Net>
auto with_layouts(const Net& net, const DeviceMesh& mesh, const InputOutputStyle& style) {
  if constexpr (requires { typename Net::ContainedType; }) {
    return WithLayouts<typename Net::ContainedType>(net.ptr(), mesh, style);
  } else {
    return WithLayouts<typename Net::element_type>(net, mesh, style);
  }
}

}  // namespace cohort::parallel

// Old names, until the next release.
namespace cohort {
using parallel::with_layouts;
}  // namespace cohort
