// The reference: plain loops over a block of elements, which the compiler may vectorize with the baseline's instructions.
#include "cohort/shm/kernels/recipes.h"

namespace cohort::shm {
namespace {

constexpr size_t kBlock = 256;
constexpr size_t kFew = 4;

template <class R>
struct ScalarLoop {
  using Element = typename R::Element;
  using Wide = typename R::Wide;

  /// Reads a block from every input before it writes any of it, because `out` may be an input.
  static void block(void* out, const void* const* inputs, const double* factors, int num_inputs, size_t begin,
                    size_t count) {
    Wide sums[kBlock];
    for (int index = 0; index < num_inputs; ++index) {
      const Element* input = static_cast<const Element*>(inputs[index]) + begin;
      const Wide weight = weight_of<R>(factors, num_inputs, index);
      if (index == 0) {
        for (size_t i = 0; i < count; ++i) sums[i] = weigh<R>(widened<Wide>(input[i]), weight);
      } else {
        for (size_t i = 0; i < count; ++i) {
          sums[i] = R::Op::combine(sums[i], weigh<R>(widened<Wide>(input[i]), weight));
        }
      }
    }
    Element* output = static_cast<Element*>(out) + begin;
    for (size_t i = 0; i < count; ++i) output[i] = narrowed<Element>(finish<R>(sums[i], num_inputs));
  }

  static void run(void* out, const void* const* inputs, const double* factors, int num_inputs, size_t count) {
    if (count <= kFew) {
      for (size_t i = 0; i < count; ++i) {
        static_cast<Element*>(out)[i] = combined_at<R>(inputs, factors, num_inputs, i);
      }
      return;
    }
    for (size_t begin = 0; begin < count; begin += kBlock) {
      block(out, inputs, factors, num_inputs, begin, count - begin < kBlock ? count - begin : kBlock);
    }
  }
};

}  // namespace

constinit const KernelTable kScalarKernels = make_table<ScalarLoop>();

}  // namespace cohort::shm
