/// with_layouts: wraps a module so that tensors are redistributed on their way in and out, for modules that are not children of a
/// torch::nn::Sequential: a full model, or a member of your own.
///
///     auto model = cohort::with_layouts(gpt, mesh["tp"], cohort::PrepareModuleInputOutput{
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
#include "cohort/parallel/tensor/layout_border.h"

namespace cohort {

namespace parallel::detail {

/// The wrapper without forward.
template <class Net>
class BorderedNet : public WrapperBase<Net> {
 public:
  BorderedNet(std::shared_ptr<Net> net, LayoutBorder border)
      : WrapperBase<Net>("WithLayouts", std::move(net)), border_(std::move(border)) {}

  template <class... Arguments>
  auto call(Arguments&&... arguments) {
    const auto run = [this](auto&&... each) { return this->module().forward(std::forward<decltype(each)>(each)...); };
    const auto enter = [this](std::vector<at::Tensor> tensors) { return border_.inputs(std::move(tensors)); };
    auto result = fsdp::with_exchanged_tensors(run, enter, std::forward<Arguments>(arguments)...);
    const auto tensors = border_.outputs(fsdp::tensors_in(result));
    size_t next = 0;
    return move_tensors(std::move(result), fsdp::PutTensors{&tensors, &next});
  }

 private:
  LayoutBorder border_;
};

}  // namespace parallel::detail

template <class Net, class Signature = parallel::ForwardSignature<Net>>
class WithLayoutsImpl final : public parallel::WrapperWithForward<parallel::detail::BorderedNet<Net>, Net, Signature> {
  using Base = parallel::WrapperWithForward<parallel::detail::BorderedNet<Net>, Net, Signature>;

 public:
  using Base::Base;
};

template <class Net, class Signature = parallel::ForwardSignature<Net>>
class WithLayouts : public parallel::WrapperHolder<WithLayoutsImpl<Net, Signature>, Net> {
  using Impl = WithLayoutsImpl<Net, Signature>;

 public:
  /// Throws as parallel::LayoutBorder.
  WithLayouts(std::shared_ptr<Net> net, const DeviceMesh& mesh, const BorderStyle& style)
      : parallel::WrapperHolder<Impl, Net>(
            std::make_shared<Impl>(std::move(net), parallel::LayoutBorder(mesh, style))) {}
  /*implicit*/ WithLayouts(std::nullptr_t) : parallel::WrapperHolder<Impl, Net>(nullptr) {}
};

/// `net`: a holder, or a std::shared_ptr to a module. Layouts count the tensors among forward's arguments and results.
template <class Net>
auto with_layouts(const Net& net, const DeviceMesh& mesh, const BorderStyle& style) {
  if constexpr (requires { typename Net::ContainedType; }) {
    return WithLayouts<typename Net::ContainedType>(net.ptr(), mesh, style);
  } else {
    return WithLayouts<typename Net::element_type>(net, mesh, style);
  }
}

}  // namespace cohort
