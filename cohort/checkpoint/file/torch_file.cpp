#include "cohort/checkpoint/file/torch_file.h"

#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "cohort/base/machine/cpu.h"
#include "cohort/checkpoint/file/scalar_type.h"
#include "cohort/checkpoint/file/storage_loader.h"
#include "cohort/checkpoint/file/torch_tree.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/pickle/pickle_converter.h"
#include "cohort/files/tensors/pt/pt_file.h"
#include "cohort/files/tensors/pt/pt_writer.h"

namespace cohort::checkpoint {
namespace {

using base::PickleKind;
using base::PickleValue;
using c10::IValue;

constexpr int kMaxWriters = 4;

class TorchFileLoader {
 public:
  TorchFileLoader(const char* function, const std::string& path, const LoadOptions& options) : options_(options) {
    const auto file = comm::or_throw(files::RandomAccessFile::open(path), function);
    description_ = comm::or_throw(files::read_pt_file(file), function);
    storages_ = detail::load_storages(function, file, description_, options);
  }

  const PickleValue& root() const { return description_.root; }
  bool is_tensor(const PickleValue& value) const { return description_.tensor(value) != nullptr; }
  IValue convert(const PickleValue& value) { return converter_.convert(value); }

 private:
  IValue make(const PickleValue& value) {
    if (const files::PtTensor* tensor = description_.tensor(value)) return make_tensor(*tensor);
    const auto plain = description_.plain.find(value.identity());
    if (plain == description_.plain.end()) return make_dict(value);
    const bool is_device = value.is(PickleKind::kObject) && value.name().is("torch", "device");
    return is_device ? IValue(c10::Device(std::string(plain->second.text()))) : converter_.convert(plain->second);
  }

  IValue make_dict(const PickleValue& ordered) {
    IValue dict = converter_.convert_entries(ordered);
    const PickleValue* metadata = options_.keep_metadata ? ordered.object_state().find("_metadata") : nullptr;
    if (!metadata) return dict;
    c10::impl::GenericDict with_metadata(c10::AnyType::get(), c10::AnyType::get());
    for (const auto& entry : dict.toGenericDict()) with_metadata.insert(entry.key(), entry.value());
    with_metadata.insert_or_assign("_metadata", converter_.convert(*metadata));
    return with_metadata;
  }

  at::Tensor make_tensor(const files::PtTensor& tensor) const {
    const c10::NoGradGuard no_grad;
    const c10::Storage& storage = storages_[tensor.storage];
    at::Tensor result = at::empty({0}, at::TensorOptions().dtype(scalar_type(tensor.dtype)).device(storage.device()));
    result.set_(storage, tensor.offset, tensor.shape, tensor.strides);
    if (tensor.is_conjugate && result.is_complex()) result._set_conj(true);
    if (tensor.is_negative) result._set_neg(true);
    const bool may_have_gradient = result.is_floating_point() || result.is_complex();
    TORCH_CHECK(may_have_gradient || !tensor.requires_grad, "[cohort] load: a tensor of dtype ", result.scalar_type(),
                " is said to have a gradient, which only those of floats and complex numbers can have");
    return result.set_requires_grad(tensor.requires_grad);
  }

  const LoadOptions& options_;
  files::PtFile description_;
  std::vector<c10::Storage> storages_;
  comm::PickleConverter converter_{[this](const PickleValue& value) { return make(value); }};
};

void write_tree(const detail::TorchTree& tree, const std::string& path, const SaveOptions& options) {
  comm::or_throw(files::write_pt_file(path, tree.root, tree.storages,
                                      {.sync = options.sync ? base::Sync::kYes : base::Sync::kNo,
                                       .num_threads = std::min(base::available_cores(), kMaxWriters)}),
                 "save");
}

}  // namespace

IValue load(const std::string& path, const LoadOptions& options) {
  TorchFileLoader loader("load", path, options);
  return loader.convert(loader.root());
}

StateDict load_tensors(const std::string& path, const LoadOptions& options) {
  TorchFileLoader loader("load_tensors", path, options);
  const PickleValue& root = loader.root();
  const auto fail = [&](const std::string& what) {
    comm::throw_error(base::Error("\"" + path + "\" does not hold a single dict of tensors: " + what)
                          .with_hint("call load(), which returns the whole value"),
                      "load_tensors");
  };
  const bool is_dict = root.is(PickleKind::kDict) || (root.is(PickleKind::kObject) && !loader.is_tensor(root));
  if (!is_dict)
    fail("its value is of type " + std::string(loader.is_tensor(root) ? "Tensor" : base::kind_text(root.kind())));
  StateDict tensors;
  for (const base::PickleEntry& entry : root.entries()) {
    if (!entry.key.is(PickleKind::kText)) fail("a key is of type " + std::string(base::kind_text(entry.key.kind())));
    if (!loader.is_tensor(entry.value)) {
      fail("\"" + std::string(entry.key.text()) + "\" is of type " + std::string(base::kind_text(entry.value.kind())));
    }
    tensors.insert(std::string(entry.key.text()), loader.convert(entry.value).toTensor());
  }
  return tensors;
}

void save(const IValue& value, const std::string& path, const SaveOptions& options) {
  write_tree(detail::describe(value, options), path, options);
}

void save(const StateDict& tensors, const std::string& path, const SaveOptions& options) {
  write_tree(detail::describe(tensors, options), path, options);
}

}  // namespace cohort::checkpoint
