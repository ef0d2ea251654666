// AVX-512 F, BW, DQ and VL.
#include "cohort/shm/kernels/avx512_machine.h"

namespace cohort::shm {
namespace {

template <class R>
using Loop = VectorLoop<Avx512, R>;

}  // namespace

constinit const KernelTable kAvx512Kernels = make_table<Loop>();

}  // namespace cohort::shm
