#include "cohort/checkpoint/file/safetensors.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "cohort/base/file/atomic_file.h"
#include "cohort/checkpoint/file/mapped_tensors.h"
#include "cohort/checkpoint/file/scalar_type.h"
#include "cohort/checkpoint/file/tensor_file.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/tensors/plain_tensor.h"
#include "cohort/files/input/private_mapping.h"
#include "cohort/files/tensors/safetensors/safetensors_file.h"

namespace cohort::checkpoint {
namespace {

using base::Error;
using base::Result;

void check_storable(const char* function, const std::string& name, const at::Tensor& tensor) {
  const char* problem = !tensor.defined()                 ? "is undefined"
                        : tensor.layout() != at::kStrided ? "is sparse; call to_dense() first"
                        : tensor.is_meta()                ? "is on the meta device and has no data"
                                                          : nullptr;
  TORCH_CHECK_VALUE(problem == nullptr, "[cohort] ", function, ": tensor \"", name, "\" ", problem);
  const auto dtype = file_dtype(tensor.scalar_type());
  TORCH_CHECK_VALUE(dtype && !files::info_of(*dtype).safetensors_name.empty(), "[cohort] ", function, ": tensor \"",
                    name, "\" is ", tensor.scalar_type(), ", which the safetensors format does not know");
}

struct Extent {
  const char* begin;
  const char* end;
  const std::string* name;
};

// Returns the range of the tensor's bytes. Addresses on other devices than the CPU are only compared, not read.
Extent extent_of(const std::string& name, const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) last += (tensor.size(dim) - 1) * tensor.stride(dim);
  const char* begin = static_cast<const char*>(tensor.const_data_ptr());
  return {begin, begin + (last + 1) * static_cast<int64_t>(tensor.element_size()), &name};
}

void refuse_shared(const char* function, const StateDict& tensors) {
  std::vector<Extent> extents;
  for (const auto& item : tensors) {
    if (item.value().numel() > 0) extents.push_back(extent_of(item.key(), item.value()));
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return std::pair(a.begin, *a.name) < std::pair(b.begin, *b.name); });
  std::string shared;
  for (size_t i = 0, widest = 0; i + 1 < extents.size(); ++i) {
    if (extents[i].end > extents[widest].end) widest = i;
    if (extents[i + 1].begin >= extents[widest].end) continue;
    shared += "\n  \"" + *extents[widest].name + "\" and \"" + *extents[i + 1].name + "\"";
  }
  TORCH_CHECK_VALUE(shared.empty(), "[cohort] ", function,
                    ": some tensors share memory; a file would hold copies that are no longer tied:", shared,
                    "\n  hint: use save_model(), or clone() one of them, or set shared_tensors to kSaveEach");
}

files::SafetensorsHeader header_of(const StateDict& tensors, const FileMetadata& metadata) {
  files::SafetensorsHeader header{.metadata = metadata};
  for (const auto& item : tensors) {
    const auto dtype = file_dtype(item.value().scalar_type()).value();
    header.entries.push_back({item.key(), dtype, item.value().sizes().vec()});
  }
  return header;
}

Result<void> write_tensors(const StateDict& tensors, files::SafetensorsHeader header, const std::string& path) {
  const std::vector<size_t> order = files::place_entries(header.entries);
  Result<std::string> prefix = files::safetensors_prefix(header);
  if (!prefix) return prefix.error();
  Result<base::AtomicFile> file = base::AtomicFile::create(path);
  if (!file) return file.error();
  uint64_t num_bytes = prefix->size();
  for (const files::SafetensorsEntry& entry : header.entries) num_bytes += entry.end - entry.begin;
  Result<void> done = file->reserve(num_bytes);
  if (done) done = file->write(*prefix);
  for (const size_t index : order) {
    if (!done) return done;
    const at::Tensor data = comm::as_plain(tensors[index].value().detach().cpu());
    done = file->write({static_cast<const char*>(data.const_data_ptr()), data.nbytes()});
  }
  return done ? file->commit() : done;
}

[[noreturn]] void throw_file_error(const char* function, const char* verb, const std::string& path,
                                   const Error& reason) {
  comm::throw_error(Error(c10::str("cannot ", verb, " \"", path, "\"")).caused_by(reason), function);
}

files::SafetensorsFile open_or_throw(const char* function, const std::string& path) {
  Result<files::SafetensorsFile> file = files::open_safetensors(path);
  if (!file) throw_file_error(function, "read", path, file.error());
  return std::move(*file);
}

}  // namespace

namespace detail {

void write_file(const char* function, const StateDict& tensors, const std::string& path, const FileMetadata& metadata,
                const SaveFileOptions& options) {
  for (const auto& item : tensors) check_storable(function, item.key(), item.value());
  if (options.shared_tensors == SharedTensors::kRefuse) refuse_shared(function, tensors);
  const Result<void> done = write_tensors(tensors, header_of(tensors, metadata), path);
  if (!done) throw_file_error(function, "write", path, done.error());
}

StateDict read_tensors(const char* function, const std::string& path, const LoadFileOptions& options) {
  const files::SafetensorsFile file = open_or_throw(function, path);
  std::shared_ptr<const files::PrivateMapping> mapping;
  if (options.mmap) {
    auto mapped = files::PrivateMapping::map(file.file);
    if (!mapped) throw_file_error(function, "map", path, mapped.error());
    mapping = std::move(*mapped);
  }
  StateDict tensors;
  tensors.reserve(file.header.entries.size());
  for (const files::SafetensorsEntry& entry : file.header.entries) {
    const auto dtype = scalar_type(entry.dtype);
    at::Tensor tensor;
    if (mapping) tensor = mapped_tensor(mapping, file.data_begin + entry.begin, entry.shape, dtype);
    if (!tensor.defined()) {
      tensor = at::empty(entry.shape, at::TensorOptions().dtype(dtype));
      const Result<void> done =
          file.file.read(file.data_begin + entry.begin,
                         {static_cast<char*>(tensor.mutable_data_ptr()), entry.end - entry.begin}, "data");
      if (!done)
        throw_file_error(function, "read", path, Error("tensor \"" + entry.name + "\"").caused_by(done.error()));
    }
    // A file may have any byte, but a bool in memory must be 0 or 1.
    if (dtype == at::kBool) tensor = tensor.view(at::kByte).ne(0);
    tensors.insert(entry.name, options.device.is_cpu() ? std::move(tensor) : tensor.to(options.device));
  }
  return tensors;
}

files::SafetensorsHeader read_header(const char* function, const std::string& path) {
  return std::move(open_or_throw(function, path).header);
}

}  // namespace detail

void save_file(const StateDict& tensors, const std::string& path, const FileMetadata& metadata,
               const SaveFileOptions& options) {
  detail::write_file("save_file", tensors, path, metadata, options);
}

StateDict load_file(const std::string& path, const LoadFileOptions& options) {
  return detail::read_tensors("load_file", path, options);
}

FileMetadata load_metadata(const std::string& path) { return detail::read_header("load_metadata", path).metadata; }

}  // namespace cohort::checkpoint
