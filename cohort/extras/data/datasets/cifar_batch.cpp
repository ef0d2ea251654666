#include "cohort/extras/data/datasets/cifar_batch.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "cohort/comm/error/exception_text.h"
#include "cohort/extras/data/datasets/numpy_pickle.h"
#include "cohort/extras/files/sets/cifar_records.h"

namespace cohort::data::detail {
namespace {

c10::IValue unpickle_file(const std::string& path, std::string_view bytes) {
  try {
    return unpickle_numpy(bytes);
  } catch (const c10::ValueError& error) {
    TORCH_CHECK(false, "[cohort] cannot read \"", path, "\": ", comm::text_of(error));
  }
}

const char* kind_in_words(const c10::IValue& value) {
  if (value.isTensor()) return "an array";
  if (value.isString()) return "a text";
  if (value.isInt()) return "an int";
  if (value.isList()) return "a list";
  return value.isGenericDict() ? "a dict" : "something else";
}

c10::IValue entry_of(const std::string& path, const c10::IValue& value, const std::string& key) {
  TORCH_CHECK(value.isGenericDict(), "[cohort] cannot read \"", path, "\": expected a dict, but found ",
              kind_in_words(value));
  const auto dict = value.toGenericDict();
  const auto found = dict.find(key);
  TORCH_CHECK(found != dict.end(), "[cohort] cannot read \"", path, "\": expected a dict with \"", key,
              "\", but found one without it");
  return found->value();
}

}  // namespace

std::pair<at::Tensor, at::Tensor> read_pickled_batch(const std::string& path, std::string_view bytes,
                                                     const std::string& key, int64_t num_classes) {
  const auto batch = unpickle_file(path, bytes);
  const auto data = entry_of(path, batch, "data");
  const bool is_images =
      data.isTensor() && data.toTensor().dim() == 2 && data.toTensor().size(1) == files::kCifarImageBytes;
  TORCH_CHECK(is_images, "[cohort] cannot read \"", path, "\": expected \"data\" as an array of ",
              files::kCifarImageBytes, " bytes for each image, but found ",
              data.isTensor() ? c10::str("the shape ", data.toTensor().sizes()) : kind_in_words(data));
  const at::Tensor& images = data.toTensor();
  const auto list = entry_of(path, batch, key);
  TORCH_CHECK(list.isIntList() && static_cast<int64_t>(list.toIntList().size()) == images.size(0),
              "[cohort] cannot read \"", path, "\": expected \"", key, "\" as a list of ", images.size(0),
              " int, but found ",
              list.isIntList() ? c10::str(list.toIntList().size(), " int")
              : list.isList()  ? "a list of something else"
                               : kind_in_words(list));
  at::Tensor labels = at::empty({images.size(0)}, at::kLong);
  auto* to = labels.mutable_data_ptr<int64_t>();
  for (const int64_t label : list.toIntVector()) {
    TORCH_CHECK(label >= 0 && label < num_classes, "[cohort] cannot read \"", path, "\": expected \"", key, "\" below ",
                num_classes, ", but found ", label);
    *to++ = label;
  }
  return {images, labels};
}

std::vector<std::string> read_pickled_names(const std::string& path, std::string_view bytes, const std::string& key,
                                            int64_t num_classes) {
  const auto list = entry_of(path, unpickle_file(path, bytes), key);
  std::vector<std::string> names;
  if (list.isList()) {
    for (const c10::IValue& name : list.toList()) {
      if (name.isString()) names.push_back(name.toStringRef());
    }
  }
  TORCH_CHECK(static_cast<int64_t>(names.size()) == num_classes, "[cohort] cannot read \"", path, "\": expected \"",
              key, "\" as a list of ", num_classes, " texts, but found ",
              list.isList() ? c10::str(names.size()) : kind_in_words(list));
  return names;
}

}  // namespace cohort::data::detail
