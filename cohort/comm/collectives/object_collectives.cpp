#include "cohort/comm/collectives/object_collectives.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <cstring>
#include <limits>

#include "cohort/comm/collectives/arguments.h"
#include "cohort/comm/collectives/point_to_point.h"
#include "cohort/comm/error/exception_text.h"
#include "cohort/comm/group/device.h"
#include "cohort/comm/group/group_backend.h"
#include "cohort/job/call_site.h"

// Each function makes the same calls, in the same order and with the same shapes and dtypes, as Python's function of that name.
namespace cohort {
namespace {

using comm::resolve;
using comm::skips;
using comm::to_group_rank;

std::string to_pickle(const c10::IValue& object) { return comm::pickle(object); }
std::string to_pickle(const std::string& object) { return comm::pickle_bytes(object); }

void read_pickle(std::string_view data, c10::IValue& object) { object = comm::unpickle(data); }
void read_pickle(std::string_view data, std::string& object) {
  const auto value = comm::unpickle(data);
  TORCH_CHECK_VALUE(comm::is_bytes(value), "[cohort] expected bytes, got a value of type ", value.tagKind(),
                    "; receive it as c10::IValue");
  object = comm::bytes_of(value);
}

at::Device object_device(const Group& group, const std::optional<at::Device>& wanted) {
  return wanted ? *wanted : comm::device_for_host_data(group);
}

at::Tensor size_tensor(int64_t size, at::Device device) { return at::full({1}, size, at::kLong).to(device); }

// Returns `data` in a tensor of `size` bytes. Bytes after it are defined, but nobody reads them.
at::Tensor payload_tensor(const std::string& data, int64_t size, at::Device device) {
  auto tensor = at::zeros({size}, at::kByte);
  if (!data.empty()) std::memcpy(tensor.mutable_data_ptr(), data.data(), data.size());
  return tensor.to(device);
}

int64_t length(const std::string& data) { return static_cast<int64_t>(data.size()); }

std::vector<int64_t> to_numbers(const at::Tensor& tensor) {
  const auto host = tensor.to(at::kCPU);
  const auto* first = host.const_data_ptr<int64_t>();
  return {first, first + host.numel()};
}

[[noreturn]] void refuse_sizes(const std::vector<int64_t>& sizes) {
  C10_THROW_ERROR(ValueError,
                  c10::str("[cohort] the object sizes received are [", c10::Join(", ", sizes),
                           "]; all ranks must call the same object collective with lists of the same length"));
}

// Checks sizes that come from other ranks.
int64_t checked_total(const std::vector<int64_t>& sizes) {
  int64_t total = 0;
  for (const auto size : sizes) {
    if (size < 0 || size > std::numeric_limits<int64_t>::max() - total) refuse_sizes(sizes);
    total += size;
  }
  return total;
}

// Reads objects from one tensor, at multiples of `stride` bytes (0: one after the other). `sender` may differ per object.
template <class T, class Sender>
void read_objects(const at::Tensor& tensor, const std::vector<int64_t>& sizes, int64_t stride, std::vector<T>& objects,
                  const Sender& sender) {
  const auto host = tensor.to(at::kCPU).contiguous();
  const auto* begin = static_cast<const char*>(host.const_data_ptr());
  int64_t offset = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (stride > 0) offset = stride * static_cast<int64_t>(i);
    try {
      read_pickle({begin + offset, static_cast<size_t>(sizes[i])}, objects[i]);
    } catch (const c10::Error& error) {
      TORCH_CHECK_VALUE(false, "[cohort] object ", i, " of rank ", sender(i), ": ", comm::text_of(error));
    }
    offset += sizes[i];
  }
}

void check_room(size_t size, const Group& group, const char* operation, const char* argument) {
  const auto needed = static_cast<size_t>(resolve(group)->getSize());
  TORCH_CHECK_VALUE(size >= needed, "[cohort] ", operation, " needs room for one object per rank in ", argument, ", ",
                    needed, ", got ", size);
}

struct Gathered {
  std::vector<int64_t> sizes;
  int64_t largest = 0;
  TensorList outputs;  // views of `whole`
  at::Tensor whole;
};

// Exchanges sizes, before all_gather_object and gather_object exchange the pickles.
Gathered gather_sizes(const std::string& mine, at::Device device, const Group& group, bool receives) {
  const auto size = resolve(group)->getSize();
  Gathered result;
  const auto sizes = at::zeros({size}, at::TensorOptions().dtype(at::kLong).device(device));
  all_gather(sizes.split(1), size_tensor(length(mine), device), {.group = group});
  result.sizes = to_numbers(sizes);
  checked_total(result.sizes);
  result.largest = *std::max_element(result.sizes.begin(), result.sizes.end());
  if (result.largest > std::numeric_limits<int64_t>::max() / size) refuse_sizes(result.sizes);
  if (receives) {
    result.whole = at::empty({result.largest * size}, at::TensorOptions().dtype(at::kByte).device(device));
    result.outputs = result.whole.split(result.largest);
  }
  return result;
}

auto sender_by_position(const Group& group) {
  return [group](size_t position) { return get_global_rank(group, static_cast<int>(position)); };
}

template <class T>
void gather_everywhere(std::vector<T>& list, const T& object, const ObjectOptions& options) {
  if (skips(options.group, "all_gather_object")) return;
  check_room(list.size(), options.group, "all_gather_object", "object_list");
  const auto device = object_device(options.group, options.device);
  const auto mine = to_pickle(object);
  const auto gathered = gather_sizes(mine, device, options.group, true);
  all_gather(gathered.outputs, payload_tensor(mine, gathered.largest, device), {.group = options.group});
  read_objects(gathered.whole, gathered.sizes, gathered.largest, list, sender_by_position(options.group));
}

template <class T>
void gather_at_root(const T& object, std::vector<T>* list, RankArgument dst, const ObjectOptions& options) {
  if (skips(options.group, "gather_object")) return;
  const int root = to_group_rank(options.group, dst);
  const bool is_root = resolve(options.group)->getRank() == root;
  const bool has_list = list && !list->empty();
  TORCH_CHECK_VALUE(!is_root || has_list, "Argument ``gather_list`` must be specified on destination rank.");
  TORCH_CHECK_VALUE(is_root || !has_list, "Argument ``gather_list`` must NOT be specified on non-destination ranks.");
  if (is_root) check_room(list->size(), options.group, "gather_object", "object_gather_list");
  const auto device = object_device(options.group, options.device);
  const auto mine = to_pickle(object);
  const auto gathered = gather_sizes(mine, device, options.group, is_root);
  gather(payload_tensor(mine, gathered.largest, device), gathered.outputs, group_rank(root), {.group = options.group});
  if (is_root) {
    read_objects(gathered.whole, gathered.sizes, gathered.largest, *list, sender_by_position(options.group));
  }
}

// The pickles of a list, one after the other, and their sizes.
struct Packed {
  at::Tensor sizes;
  at::Tensor payload;
};

template <class T>
Packed pack(const std::vector<T>& list, at::Device device) {
  std::string all;
  std::vector<int64_t> sizes;
  for (const auto& object : list) {
    const auto data = to_pickle(object);
    sizes.push_back(length(data));
    all += data;
  }
  return {at::tensor(sizes, at::kLong).to(device), payload_tensor(all, length(all), device)};
}

at::Tensor empty_sizes(size_t count, at::Device device) {
  return at::empty({static_cast<int64_t>(count)}, at::TensorOptions().dtype(at::kLong).device(device));
}

at::Tensor empty_payload(const std::vector<int64_t>& sizes, at::Device device) {
  return at::empty({checked_total(sizes)}, at::TensorOptions().dtype(at::kByte).device(device));
}

void check_not_empty(size_t size, const char* operation) {
  TORCH_CHECK_VALUE(size > 0, "[cohort] ", operation, " needs at least one object, got an empty list");
}

template <class T>
void broadcast_list(std::vector<T>& list, RankArgument src, const ObjectOptions& options) {
  if (skips(options.group, "broadcast_object_list")) return;
  check_not_empty(list.size(), "broadcast_object_list");
  const int root = to_group_rank(options.group, src);
  const auto device = object_device(options.group, options.device);
  if (resolve(options.group)->getRank() == root) {
    const auto packed = pack(list, device);
    broadcast(packed.sizes, group_rank(root), {.group = options.group});
    broadcast(packed.payload, group_rank(root), {.group = options.group});
    return;
  }
  const auto sizes = empty_sizes(list.size(), device);
  broadcast(sizes, group_rank(root), {.group = options.group});
  const auto numbers = to_numbers(sizes);
  const auto payload = empty_payload(numbers, device);
  broadcast(payload, group_rank(root), {.group = options.group});
  read_objects(payload, numbers, 0, list, [&](size_t) { return get_global_rank(options.group, root); });
}

template <class T>
std::vector<std::string> scatter_pickles(const std::vector<T>* inputs, const Group& group) {
  TORCH_CHECK_VALUE(inputs, "source rank must provide non-None scatter_object_input_list");
  const auto size = static_cast<size_t>(resolve(group)->getSize());
  TORCH_CHECK_VALUE(inputs->size() == size, "[cohort] scatter_object_list needs one object per rank in input_list, ",
                    size, ", got ", inputs->size());
  std::vector<std::string> pickles;
  for (const auto& object : *inputs) pickles.push_back(to_pickle(object));
  return pickles;
}

template <class T>
void scatter_list(std::vector<T>& outputs, const std::vector<T>* inputs, RankArgument src,
                  const ObjectOptions& options) {
  const auto& group = options.group;
  if (skips(group, "scatter_object_list")) return;
  const int root = to_group_rank(group, src);
  TORCH_CHECK_VALUE(!outputs.empty(), "Expected argument scatter_object_output_list to be a list of size at least 1.");
  const auto device = object_device(group, options.device);
  TensorList payloads;
  TensorList sizes;
  auto largest = size_tensor(0, device);
  if (resolve(group)->getRank() == root) {
    const auto pickles = scatter_pickles(inputs, group);
    int64_t most = 0;
    for (const auto& data : pickles) most = std::max(most, length(data));
    for (const auto& data : pickles) {
      payloads.push_back(payload_tensor(data, most, device));
      sizes.push_back(size_tensor(length(data), device));
    }
    largest.fill_(most);
  }
  broadcast(largest, group_rank(root), {.group = group});
  const auto payload = empty_payload(to_numbers(largest), device);
  scatter(payload, payloads, group_rank(root), {.group = group});
  const auto size = size_tensor(0, device);
  scatter(size, sizes, group_rank(root), {.group = group});
  const auto number = to_numbers(size);
  TORCH_CHECK_VALUE(number[0] >= 0 && number[0] <= payload.numel(), "[cohort] an object of ", number[0],
                    " bytes was received in a message of ", payload.numel());
  read_objects(payload, number, 0, outputs, [&](size_t) { return get_global_rank(group, root); });
}

void send_tensor(const at::Tensor& tensor, RankArgument dst, const ObjectOptions& options) {
  if (!options.use_batch) return send(tensor, dst, {.group = options.group});
  for (const auto& work : batch_isend_irecv({P2POp::isend(tensor, dst, {.group = options.group})})) work->wait();
}

int receive_tensor(const at::Tensor& tensor, std::optional<RankArgument> src, const ObjectOptions& options) {
  if (!options.use_batch) return recv(tensor, src, {.group = options.group});
  TORCH_CHECK_VALUE(src, "[cohort] recv_object_list with use_batch needs src");
  for (const auto& work : batch_isend_irecv({P2POp::irecv(tensor, *src, {.group = options.group})})) work->wait();
  return get_global_rank(options.group, to_group_rank(options.group, *src));
}

void check_not_self(const Group& group, RankArgument rank, const char* role) {
  TORCH_CHECK_VALUE(to_group_rank(group, rank) != resolve(group)->getRank(), "Invalid ", role, " rank: ", role,
                    " rank should not be the same as the rank of the current process.");
}

template <class T>
void send_list(const std::vector<T>& list, RankArgument dst, const ObjectOptions& options) {
  if (skips(options.group, "send_object_list")) return;
  check_not_self(options.group, dst, "destination");
  check_not_empty(list.size(), "send_object_list");
  const auto packed = pack(list, object_device(options.group, options.device));
  send_tensor(packed.sizes, dst, options);
  send_tensor(packed.payload, dst, options);
}

template <class T>
int receive_list(std::vector<T>& list, std::optional<RankArgument> src, const ObjectOptions& options) {
  if (skips(options.group, "recv_object_list")) return -1;
  if (src) check_not_self(options.group, *src, "source");
  check_not_empty(list.size(), "recv_object_list");
  const auto device = object_device(options.group, options.device);
  const auto sizes = empty_sizes(list.size(), device);
  const int sender = receive_tensor(sizes, src, options);
  const auto numbers = to_numbers(sizes);
  const auto payload = empty_payload(numbers, device);
  // Receives from the same rank, also if other ranks are sending.
  receive_tensor(payload, group_rank(get_group_rank(options.group, sender)), options);
  read_objects(payload, numbers, 0, list, [&](size_t) { return sender; });
  return sender;
}

}  // namespace

void all_gather_object(ObjectList& object_list, const c10::IValue& object, const ObjectOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  gather_everywhere(object_list, object, options);
}
void all_gather_object(BytesList& object_list, const std::string& object, const ObjectOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  gather_everywhere(object_list, object, options);
}

void gather_object(const c10::IValue& object, ObjectList* object_gather_list, RankArgument dst,
                   const ObjectOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  gather_at_root(object, object_gather_list, dst, options);
}
void gather_object(const std::string& object, BytesList* object_gather_list, RankArgument dst,
                   const ObjectOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  gather_at_root(object, object_gather_list, dst, options);
}

void broadcast_object_list(ObjectList& object_list, RankArgument src, const ObjectOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  broadcast_list(object_list, src, options);
}
void broadcast_object_list(BytesList& object_list, RankArgument src, const ObjectOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  broadcast_list(object_list, src, options);
}

void scatter_object_list(ObjectList& output_list, const ObjectList* input_list, RankArgument src,
                         const ObjectOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  scatter_list(output_list, input_list, src, options);
}
void scatter_object_list(BytesList& output_list, const BytesList* input_list, RankArgument src,
                         const ObjectOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  scatter_list(output_list, input_list, src, options);
}

void send_object_list(const ObjectList& object_list, RankArgument dst, const ObjectOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  send_list(object_list, dst, options);
}
void send_object_list(const BytesList& object_list, RankArgument dst, const ObjectOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  send_list(object_list, dst, options);
}

int recv_object_list(ObjectList& object_list, std::optional<RankArgument> src, const ObjectOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  return receive_list(object_list, src, options);
}
int recv_object_list(BytesList& object_list, std::optional<RankArgument> src, const ObjectOptions& options) {
  const job::CallSite site(__builtin_return_address(0));
  return receive_list(object_list, src, options);
}

}  // namespace cohort
