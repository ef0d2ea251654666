#include "cohort/extras/data/transforms/image_stack.h"

#include <ATen/ops/empty.h>

#include "cohort/data/loader/batch_memory.h"
#include "cohort/data/loader/collate.h"

namespace cohort::data {
namespace {

// Takes the loader's memory for batches, if a loader reads.
at::Tensor empty_stack(at::IntArrayRef sizes, at::ScalarType dtype) {
  auto* const memory = detail::BatchMemory::current();
  const size_t num_bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
  return memory && num_bytes >= detail::BatchMemory::kLeastBytes ? memory->make_empty(sizes, dtype)
                                                                 : at::empty(sizes, dtype);
}

}  // namespace

// Whether the next row of `rows_` fits an image like this one.
bool ImageStack::makes_room(at::IntArrayRef sizes, at::ScalarType dtype) {
  if (!list_.empty() || num_images_ == max_images_) return false;
  if (num_images_ == 0) {
    std::vector<int64_t> all{max_images_};
    all.insert(all.end(), sizes.begin(), sizes.end());
    rows_ = empty_stack(all, dtype);
  }
  return rows_.scalar_type() == dtype && rows_.sizes().slice(1) == sizes;
}

float* ImageStack::next(at::IntArrayRef sizes) {
  if (!makes_room(sizes, at::kFloat)) return nullptr;
  return rows_.mutable_data_ptr<float>() + num_images_++ * rows_.stride(0);
}

void ImageStack::add(const at::Tensor& image) {
  // Only plain images: collate() handles other strides, and gradients must be propagated.
  const bool is_plain = image.defined() && image.layout() == at::kStrided && image.is_cpu() && image.is_contiguous() &&
                        !image.requires_grad();
  if (is_plain && makes_room(image.sizes(), image.scalar_type())) {
    rows_.select(0, num_images_++).copy_(image);
    return;
  }
  become_list();
  list_.push_back(image);
}

at::Tensor ImageStack::join() {
  if (!list_.empty() || num_images_ == 0) return collate(list_);  // throws if it is empty
  return num_images_ == rows_.size(0) ? rows_ : rows_.narrow(0, 0, num_images_);
}

void ImageStack::become_list() {
  for (int64_t i = 0; i < num_images_; ++i) list_.push_back(rows_.select(0, i));
  num_images_ = 0;
}

}  // namespace cohort::data
