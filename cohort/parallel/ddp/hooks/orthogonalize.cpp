#include "cohort/parallel/ddp/hooks/orthogonalize.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

namespace cohort::ddp {
namespace {

constexpr int64_t kFewColumns = 2;  // up to this many Gram-Schmidt is faster than QR

void by_gram_schmidt(const at::Tensor& matrices, double epsilon) {
  const auto num_columns = matrices.size(2);
  for (int64_t i = 0; i < num_columns; ++i) {
    auto column = matrices.narrow(2, i, 1);
    auto length = at::linalg_vector_norm(column, 2, at::IntArrayRef{1}, /*keepdim=*/true);
    if (epsilon != 0) length = length + epsilon;
    column.div_(length);
    if (i + 1 == num_columns) continue;
    auto rest = matrices.narrow(2, i + 1, num_columns - i - 1);
    rest.sub_((column * rest).sum(at::IntArrayRef{1}, /*keepdim=*/true) * column);
  }
}

}  // namespace

void orthogonalize(const at::Tensor& matrices, double epsilon) {
  TORCH_CHECK(matrices.dim() == 3 && matrices.size(2) <= matrices.size(1),
              "[cohort] orthogonalize needs a batch of matrices with no more columns than rows, got sizes ",
              matrices.sizes());
  const auto dtype = matrices.scalar_type();
  if (matrices.size(2) <= kFewColumns || dtype == at::kHalf || dtype == at::kBFloat16) {
    return by_gram_schmidt(matrices, epsilon);
  }
  auto q = matrices;
  auto r = at::empty({matrices.size(0), matrices.size(2), matrices.size(2)}, matrices.options());
  at::linalg_qr_out(q, r, matrices, "reduced");
}

}  // namespace cohort::ddp
