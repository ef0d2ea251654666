/// The signature of a module's forward, deduced from its type; NoSignature if forward is a template or overloaded.
#pragma once

#include <torch/nn/modules/container/sequential.h>

namespace cohort::parallel {

struct NoSignature {};

template <class Function>
struct SignatureOf;

#define COHORT_SIGNATURE(QUALIFIERS)                               \
  template <class Class, class Return, class... Arguments>         \
  struct SignatureOf<Return (Class::*)(Arguments...) QUALIFIERS> { \
    using type = Return(Arguments...);                             \
  }
COHORT_SIGNATURE();
COHORT_SIGNATURE(const);
COHORT_SIGNATURE(noexcept);
COHORT_SIGNATURE(const noexcept);
COHORT_SIGNATURE(&);
COHORT_SIGNATURE(const&);
#undef COHORT_SIGNATURE

template <class Net>
struct ForwardSignatureOf {
  using type = NoSignature;
};

template <class Net>
requires requires { &Net::forward; }
struct ForwardSignatureOf<Net> : SignatureOf<decltype(&Net::forward)> {};

// Sequential's forward is a template; nearly every Sequential maps a tensor to a tensor.
template <>
struct ForwardSignatureOf<torch::nn::SequentialImpl> {
  using type = at::Tensor(at::Tensor);
};

template <class Net>
using ForwardSignature = typename ForwardSignatureOf<Net>::type;

}  // namespace cohort::parallel
