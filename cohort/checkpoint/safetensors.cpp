#include "cohort/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <utility>
#include <vector>

#include "cohort/base/atomic_file.h"
#include "cohort/base/file.h"
#include "cohort/base/text.h"
#include "cohort/checkpoint/tensor_file.h"

namespace cohort::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::Error;
using base::Result;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

void check_storable(const char* function, const std::string& name, const at::Tensor& tensor) {
  const char* problem = !tensor.defined()                 ? "is undefined"
                        : tensor.layout() != at::kStrided ? "is sparse; call to_dense() first"
                        : tensor.is_meta()                ? "is on the meta device and has no data"
                                                          : nullptr;
  TORCH_CHECK_VALUE(problem == nullptr, "[cohort] ", function, ": tensor \"", name, "\" ", problem);
  TORCH_CHECK_VALUE(dtype_name(tensor.scalar_type()), "[cohort] ", function, ": tensor \"", name, "\" is ",
                    tensor.scalar_type(), ", which the safetensors format does not know");
}

struct Extent {
  const char* begin;
  const char* end;
  const std::string* name;
};

// The bytes a tensor's elements lie in. On other devices than the CPU the addresses are not read, only compared.
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

SafetensorsHeader plan_file(const StateDict& tensors, const FileMetadata& metadata) {
  SafetensorsHeader header{.metadata = metadata};
  for (const auto& item : tensors) {
    const auto sizes = item.value().sizes();
    header.entries.push_back({item.key(), item.value().scalar_type(), {sizes.begin(), sizes.end()}});
  }
  // Wide elements first, so that every tensor is aligned for readers that map the file.
  std::vector<size_t> order(header.entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tensors[a].value().element_size() > tensors[b].value().element_size();
  });
  uint64_t place = 0;
  for (const size_t index : order) {
    header.entries[index].begin = place;
    place += tensors[index].value().nbytes();
    header.entries[index].end = place;
  }
  return header;
}

std::vector<size_t> by_place(const std::vector<TensorEntry>& entries) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(entries[a].begin, entries[a].end) < std::pair(entries[b].begin, entries[b].end);
  });
  return order;
}

Result<void> write_tensors(const StateDict& tensors, const SafetensorsHeader& header, const std::string& path) {
  Result<std::string> text = format_header(header);
  if (!text) return text.error();
  Result<base::AtomicFile> file = base::AtomicFile::create(path);
  if (!file) return file.error();
  const uint64_t length = text->size();
  Result<void> done = file->write({reinterpret_cast<const char*>(&length), sizeof(length)});
  if (done) done = file->write(*text);
  for (const size_t index : by_place(header.entries)) {
    if (!done) return done;
    const at::Tensor data = tensors[index].value().detach().resolve_conj().resolve_neg().cpu().contiguous();
    done = file->write({static_cast<const char*>(data.const_data_ptr()), data.nbytes()});
  }
  return done ? file->commit() : done;
}

Result<void> read_at(int fd, uint64_t offset, char* to, uint64_t num_bytes) {
  while (num_bytes > 0) {
    const ssize_t count = pread(fd, to, std::min<uint64_t>(num_bytes, 1 << 30), static_cast<off_t>(offset));
    if (count == 0) return Error("the file ended while it was read");
    if (count < 0 && errno != EINTR) return Error(base::errno_text(errno));
    const uint64_t done = count < 0 ? 0 : static_cast<uint64_t>(count);
    to += done, offset += done, num_bytes -= done;
  }
  return {};
}

struct OpenFile {
  base::Fd fd;
  SafetensorsHeader header;
  uint64_t data_begin = 0;
};

Result<OpenFile> open_file(const std::string& path) {
  OpenFile file;
  file.fd.reset(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO would wait for a writer
  struct stat info {};
  if (!file.fd && errno == ENOENT && !path.starts_with('/')) {
    std::error_code ignored;
    return Error(base::errno_text(errno))
        .with_hint("the path is relative to \"" + fs::current_path(ignored).string() + "\"");
  }
  if (!file.fd || fstat(file.fd.get(), &info) != 0) return Error(base::errno_text(errno));
  if (!S_ISREG(info.st_mode)) return Error("it is not a plain file");
  const auto file_size = static_cast<uint64_t>(info.st_size);
  if (file_size < 8)
    return Error("it has only " + std::to_string(file_size) + " bytes, fewer than the header's length");
  uint64_t length = 0;
  Result<void> done = read_at(file.fd.get(), 0, reinterpret_cast<char*>(&length), sizeof(length));
  if (!done) return done.error();
  if (std::memcmp(&length, "PK\3\4", 4) == 0) {
    return Error("it is a zip archive, as torch::save and torch.save write").with_hint("torch::load reads such files");
  }
  if (length > kMaxHeaderBytes) {
    return Error("it claims a header of " + std::to_string(length) + " bytes, the format allows " +
                 std::to_string(kMaxHeaderBytes))
        .with_hint("is this really a safetensors file?");
  }
  if (length > file_size - 8) {
    return Error("it claims a header of " + std::to_string(length) + " bytes, but only " +
                 std::to_string(file_size - 8) + " follow");
  }
  std::string text(length, '\0');
  done = read_at(file.fd.get(), 8, text.data(), length);
  if (!done) return done.error();
  file.data_begin = 8 + length;
  Result<SafetensorsHeader> header = parse_header(text, file_size - file.data_begin);
  if (!header) return header.error();
  file.header = std::move(*header);
  return file;
}

[[noreturn]] void throw_error(const char* function, const char* verb, const std::string& path, const Error& reason) {
  std::string text = reason.describe();
  TORCH_CHECK(false, "[cohort] ", function, ": cannot ", verb, " \"", path, "\"\n  caused by: ", text);
}

OpenFile open_or_throw(const char* function, const std::string& path) {
  Result<OpenFile> file = open_file(path);
  if (!file) throw_error(function, "read", path, file.error());
  return std::move(*file);
}

}  // namespace

namespace detail {

void write_file(const char* function, const StateDict& tensors, const std::string& path, const FileMetadata& metadata,
                const SaveOptions& options) {
  for (const auto& item : tensors) check_storable(function, item.key(), item.value());
  if (options.shared_tensors == SharedTensors::kRefuse) refuse_shared(function, tensors);
  const Result<void> done = write_tensors(tensors, plan_file(tensors, metadata), path);
  if (!done) throw_error(function, "write", path, done.error());
}

StateDict read_tensors(const char* function, const std::string& path, c10::Device device) {
  const OpenFile file = open_or_throw(function, path);
  StateDict tensors;
  tensors.reserve(file.header.entries.size());
  for (const TensorEntry& entry : file.header.entries) {
    at::Tensor tensor = at::empty(entry.shape, at::TensorOptions().dtype(entry.dtype));
    const Result<void> done = read_at(file.fd.get(), file.data_begin + entry.begin,
                                      static_cast<char*>(tensor.mutable_data_ptr()), entry.end - entry.begin);
    if (!done) throw_error(function, "read", path, Error("tensor \"" + entry.name + "\"").caused_by(done.error()));
    // Any byte may stand in a file, but a bool in memory must be 0 or 1.
    if (entry.dtype == at::kBool) tensor = tensor.view(at::kByte).ne(0);
    tensors.insert(entry.name, device.is_cpu() ? std::move(tensor) : tensor.to(device));
  }
  return tensors;
}

SafetensorsHeader read_header(const char* function, const std::string& path) {
  return std::move(open_or_throw(function, path).header);
}

}  // namespace detail

void save_file(const StateDict& tensors, const std::string& path, const FileMetadata& metadata,
               const SaveOptions& options) {
  detail::write_file("save_file", tensors, path, metadata, options);
}

StateDict load_file(const std::string& path, c10::Device device) {
  return detail::read_tensors("load_file", path, device);
}

FileMetadata load_metadata(const std::string& path) { return detail::read_header("load_metadata", path).metadata; }

}  // namespace cohort::checkpoint
