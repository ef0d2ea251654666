#include "cohort/parallel/pipeline/transfer/tensor_header.h"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cohort::pipeline {
namespace {

constexpr int64_t kMark = 0x636f686f72740001;  // "cohort", version 1
constexpr int64_t kFailed = -1;                // instead of a number of tensors
constexpr int64_t kMostDims = 64;
constexpr int64_t kMostBytes = int64_t{1} << 44;

[[noreturn]] void throw_bad_header(const char* what) {
  C10_THROW_ERROR(DistBackendError,
                  c10::str("[cohort] pipeline: the message that announces a stage's tensors is damaged: ", what,
                           "\n  hint: run the same program, with the same schedule, on all ranks"));
}

class HeaderReader {
 public:
  explicit HeaderReader(const at::Tensor& header) : values_(header.const_data_ptr<int64_t>()) {}

  int64_t next(int64_t least, int64_t most, const char* what) {
    if (at_ == kHeaderLength) throw_bad_header("it is too short");
    const int64_t value = values_[at_++];
    if (value < least || value > most) throw_bad_header(what);
    return value;
  }

  TensorMeta meta() {
    TensorMeta meta;
    meta.dtype =
        static_cast<at::ScalarType>(next(0, static_cast<int64_t>(at::ScalarType::NumOptions) - 1, "no such dtype"));
    if (!c10::isIntegralType(meta.dtype, true) && !c10::isFloatingType(meta.dtype) && !c10::isComplexType(meta.dtype)) {
      throw_bad_header("an unsupported dtype");
    }
    meta.requires_grad = next(0, 1, "a bool that is not 0 or 1") == 1;
    const int64_t num_dims = next(0, kMostDims, "an invalid number of dimensions");
    int64_t bytes = static_cast<int64_t>(c10::elementSize(meta.dtype));
    for (int64_t dim = 0; dim < num_dims; ++dim) {
      const int64_t size = next(0, kMostBytes, "no size");
      meta.sizes.push_back(size);
      if (size > 0 && bytes > kMostBytes / size) throw_bad_header("a tensor of more than 16 TiB");
      bytes *= size > 0 ? size : 1;
    }
    return meta;
  }

 private:
  const int64_t* values_;
  int64_t at_ = 0;
};

at::Tensor header_of(const std::vector<int64_t>& values) {
  at::Tensor header = at::zeros({kHeaderLength}, at::kLong);
  std::copy(values.begin(), values.end(), header.mutable_data_ptr<int64_t>());
  return header;
}

}  // namespace

size_t bytes_of(const TensorMeta& meta) {
  size_t num_bytes = c10::elementSize(meta.dtype);
  for (const int64_t size : meta.sizes) num_bytes *= static_cast<size_t>(size);
  return num_bytes;
}

TensorMetas metas_of(const TensorList& tensors) {
  TensorMetas metas;
  for (const at::Tensor& tensor : tensors) {
    metas.push_back({tensor.scalar_type(), tensor.sizes().vec(), tensor.requires_grad()});
  }
  return metas;
}

std::string text_of(const TensorMetas& metas) {
  std::string text;
  for (const TensorMeta& meta : metas) {
    text += fmt::format("{}{} [{}]", text.empty() ? "" : ", ", c10::toString(meta.dtype), fmt::join(meta.sizes, ", "));
  }
  return text.empty() ? "nothing" : text;
}

at::Tensor write_header(const TensorMetas& metas) {
  std::vector<int64_t> values = {kMark, static_cast<int64_t>(metas.size())};
  for (const TensorMeta& meta : metas) {
    values.push_back(static_cast<int64_t>(meta.dtype));
    values.push_back(meta.requires_grad ? 1 : 0);
    values.push_back(static_cast<int64_t>(meta.sizes.size()));
    values.insert(values.end(), meta.sizes.begin(), meta.sizes.end());
  }
  TORCH_CHECK_VALUE(static_cast<int64_t>(values.size()) <= kHeaderLength, "[cohort] pipeline: a stage gives ",
                    metas.size(),
                    " tensors, more than a header can hold\n  hint: pass fewer tensors, for example stacked ones");
  return header_of(values);
}

at::Tensor failure_header() { return header_of({kMark, kFailed}); }

Announcement read_header(const at::Tensor& header) {
  TORCH_CHECK_VALUE(header.scalar_type() == at::kLong && header.numel() == kHeaderLength && header.is_contiguous(),
                    "[cohort] a header has ", kHeaderLength, " 64-bit integers");
  HeaderReader reader(header);
  if (reader.next(INT64_MIN, INT64_MAX, "") != kMark) throw_bad_header("it does not begin with the mark of a header");
  const int64_t num_tensors = reader.next(kFailed, kHeaderLength, "an invalid number of tensors");
  Announcement announcement{{}, num_tensors == kFailed};
  for (int64_t i = 0; i < num_tensors; ++i) announcement.metas.push_back(reader.meta());
  return announcement;
}

}  // namespace cohort::pipeline
