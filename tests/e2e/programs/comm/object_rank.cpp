// object_rank BACKEND: one rank of a job that exchanges objects; the others may be Python's (object_python_rank.py makes the same
// calls). Each rank checks what it got.
#include <ATen/ATen.h>

#include <iostream>
#include <stdexcept>

#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/comm/group/subgroups.h"

namespace {

using c10::IValue;
using cohort::ObjectList;

IValue value_of(int rank) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("rank", int64_t{rank});
  dict.insert("name", std::string(rank * 1000 + 3, 'x') + "\u00e9\U0001F600");
  dict.insert("pair", c10::ivalue::Tuple::create({IValue(rank * 0.1), IValue(rank == 1)}));
  c10::impl::GenericList mixed(c10::AnyType::get());
  for (const auto& item :
       {IValue(), IValue(-1), IValue(int64_t{1} << (40 + rank)), IValue(c10::complex<double>(1, -2))}) {
    mixed.push_back(item);
  }
  dict.insert("mixed", mixed);
  dict.insert("ints", std::vector<int64_t>{1, 2, rank});
  return dict;
}

void check(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error("wrong: " + what);
}

void check_value(const IValue& actual, int rank, const std::string& what) {
  if (!(actual == value_of(rank))) {
    throw std::runtime_error(c10::str(what, ": expected ", value_of(rank), ", got ", actual));
  }
}

IValue tensor_of(int rank, at::ScalarType dtype) {
  return at::arange(6, at::kInt).add(rank).to(dtype).view({2, 3}).t();
}

constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kDouble, at::kHalf,         at::kBFloat16,
                                      at::kLong,  at::kInt,    at::kShort,        at::kChar,
                                      at::kByte,  at::kBool,   at::kComplexFloat, at::kComplexDouble};

void exchange(const cohort::Group& group, const std::string& name) {
  const int rank = cohort::get_rank();
  const int size = cohort::get_world_size(group);
  const auto global = [&](int member) { return cohort::get_global_rank(group, member); };
  const cohort::ObjectOptions options{.group = group};

  ObjectList everyone(size);
  cohort::all_gather_object(everyone, value_of(rank), options);
  for (int r = 0; r < size; ++r) check_value(everyone[r], global(r), name + " all_gather_object");

  const int root = global(size - 1);
  ObjectList gathered(rank == root ? size : 0);
  cohort::gather_object(value_of(rank), rank == root ? &gathered : nullptr, root, options);
  for (int r = 0; r < static_cast<int>(gathered.size()); ++r)
    check_value(gathered[r], global(r), name + " gather_object");

  for (const int source : {global(0), root}) {
    ObjectList list(2);
    if (rank == source) list = {value_of(source), value_of(source + 1)};
    cohort::broadcast_object_list(list, source, options);
    check_value(list[0], source, name + " broadcast_object_list");
    check_value(list[1], source + 1, name + " broadcast_object_list");
  }

  ObjectList inputs;
  for (int r = 0; r < size; ++r) inputs.push_back(value_of(10 + r));
  ObjectList output(1);
  cohort::scatter_object_list(output, rank == root ? &inputs : nullptr, root, options);
  check_value(output[0], 10 + cohort::get_rank(group), name + " scatter_object_list");

  cohort::BytesList bytes(size);
  cohort::all_gather_object(bytes, std::string("\0\xff", 2) + std::to_string(rank), options);
  for (int r = 0; r < size; ++r)
    check(bytes[r] == std::string("\0\xff", 2) + std::to_string(global(r)), name + " bytes");

  ObjectList tensors(size);
  c10::impl::GenericList mine(c10::AnyType::get());
  for (const auto dtype : kDtypes) mine.push_back(tensor_of(rank, dtype));
  cohort::all_gather_object(tensors, mine, options);
  for (int r = 0; r < size; ++r) {
    const auto list = tensors[r].toList();
    for (size_t i = 0; i < std::size(kDtypes); ++i) {
      const auto wanted = tensor_of(global(r), kDtypes[i]).toTensor();
      const auto got = list.get(i).toTensor();
      check(got.dtype() == wanted.dtype() && at::equal(got, wanted), name + " tensors");
    }
  }
}

void ring() {
  const int rank = cohort::get_rank();
  const int size = cohort::get_world_size();
  const int following = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;
  ObjectList list(3);
  if (rank == 0) cohort::send_object_list({value_of(0), IValue(7), cohort::comm::bytes_value("b")}, following);
  const int sender = cohort::recv_object_list(list, previous);
  check(sender == previous, "sender");
  check_value(list[0], 0, "recv_object_list");
  check(list[1] == IValue(7) && cohort::comm::bytes_of(list[2]) == "b", "recv_object_list");
  if (rank > 0) cohort::send_object_list(list, following);
}

}  // namespace

int main(int, char** argv) {
  try {
    cohort::init_process_group(argv[1]);
    exchange({}, "world");
    ring();
    const int last = cohort::get_world_size() - 1;
    const auto ends = cohort::new_group({0, last});
    if (cohort::is_member(ends)) exchange(ends, "ends");
    cohort::destroy_process_group();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
