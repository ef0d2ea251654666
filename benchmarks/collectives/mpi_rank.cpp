// A rank of `collectives` over MPI, as the rival: built only if an MPI is found, and started by mpirun. Its argument is the
// prefix of its pipes' names: commands come from <it>-commands-<rank>, and answers go to <it>-answers-<rank>. Every rank has its
// own pipes, as waiting ranks of MPI would keep the cores busy.
#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "benchmarks/collectives/collective_worker.h"
#include "benchmarks/support/serve_commands.h"
#include "cohort/base/file/file.h"

namespace cohort::bench {
namespace {

void check(int code, const char* what) {
  if (code != MPI_SUCCESS) throw std::runtime_error(std::string(what) + " failed with code " + std::to_string(code));
}

// MPI 3 has no bfloat16: sends its 16 bits as integers and sums them with this function. Rounds to nearest even.
void add_bfloat16(void* in, void* in_out, int* length, MPI_Datatype*) {
  const auto* terms = static_cast<const uint16_t*>(in);
  auto* sums = static_cast<uint16_t*>(in_out);
  const auto widen = [](uint16_t bits) {
    const uint32_t wide = uint32_t{bits} << 16;
    float value = 0;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  };
  for (int i = 0; i < *length; ++i) {
    const float sum = widen(terms[i]) + widen(sums[i]);
    uint32_t bits = 0;
    std::memcpy(&bits, &sum, sizeof bits);
    sums[i] = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}

class MpiEngine : public Engine {
 public:
  explicit MpiEngine(int rank) : rank_(rank) { check(MPI_Op_create(add_bfloat16, 1, &bfloat16_sum_), "MPI_Op_create"); }

  Call prepare(const CollectiveCase& what, const Buffers& buffers) override {
    const int whole = static_cast<int>(what.num_elements());
    const int part = whole / what.num_ranks;
    const bool is_float = what.dtype == DType::kFloat32;
    const MPI_Datatype type = is_float ? MPI_FLOAT : MPI_UINT16_T;
    const MPI_Op sum = is_float ? MPI_SUM : bfloat16_sum_;
    auto* in = buffers.input;
    auto* out = buffers.output;
    const MPI_Comm comm = MPI_COMM_WORLD;
    switch (what.op) {
      case Op::kAllReduce:
        return [=] { check(MPI_Allreduce(MPI_IN_PLACE, in, whole, type, sum, comm), "MPI_Allreduce"); };
      case Op::kBroadcast:
        return [=] { check(MPI_Bcast(in, whole, type, 0, comm), "MPI_Bcast"); };
      case Op::kReduce:
        if (rank_ > 0) return [=] { check(MPI_Reduce(in, nullptr, whole, type, sum, 0, comm), "MPI_Reduce"); };
        return [=] { check(MPI_Reduce(MPI_IN_PLACE, in, whole, type, sum, 0, comm), "MPI_Reduce"); };
      case Op::kAllGather:
        return [=] { check(MPI_Allgather(in, part, type, out, part, type, comm), "MPI_Allgather"); };
      case Op::kReduceScatter:
        return [=] { check(MPI_Reduce_scatter_block(in, out, part, type, sum, comm), "MPI_Reduce_scatter_block"); };
      case Op::kAllToAll:
        return [=] { check(MPI_Alltoall(in, part, type, out, part, type, comm), "MPI_Alltoall"); };
      case Op::kSendRecv:
        return ping_pong(buffers, whole, type);
      case Op::kBarrier:
        break;
    }
    return [=] { check(MPI_Barrier(comm), "MPI_Barrier"); };
  }

 private:
  Call ping_pong(const Buffers& buffers, int count, MPI_Datatype type) const {
    const int peer = 1 - rank_;
    const bool is_first = rank_ == 0;
    return [=] {
      if (is_first) check(MPI_Send(buffers.input, count, type, peer, 0, MPI_COMM_WORLD), "MPI_Send");
      check(MPI_Recv(buffers.output, count, type, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "MPI_Recv");
      if (!is_first) check(MPI_Send(buffers.input, count, type, peer, 0, MPI_COMM_WORLD), "MPI_Send");
    };
  }

  int rank_;
  MPI_Op bfloat16_sum_ = MPI_OP_NULL;
};

// Returns how Open MPI copies large messages between processes of one machine: "cma", "knem", "none" ...
std::string single_copy_mechanism() {
  int provided = 0, index = 0, scope = 0, verbosity = 0, binding = 0;
  std::array<char, 256> name{}, text{};
  int name_length = name.size(), text_length = text.size();
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_T_enum values = MPI_T_ENUM_NULL;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return "unknown";
  if (MPI_T_cvar_get_index("btl_vader_single_copy_mechanism", &index) != MPI_SUCCESS &&
      MPI_T_cvar_get_index("smsc", &index) != MPI_SUCCESS) {
    return "unknown";
  }
  MPI_T_cvar_get_info(index, name.data(), &name_length, &verbosity, &type, &values, text.data(), &text_length, &binding,
                      &scope);
  if (values == MPI_T_ENUM_NULL) return "unknown";
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  int count = 0, value = 0, num_items = 0;
  MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count);
  MPI_T_cvar_read(handle, &value);
  MPI_T_cvar_handle_free(&handle);
  text_length = text.size();
  MPI_T_enum_get_info(values, &num_items, text.data(), &text_length);
  for (int i = 0; i < num_items; ++i) {
    int item = 0;
    text_length = text.size();
    MPI_T_enum_get_item(values, i, &item, text.data(), &text_length);
    if (item == value) return text.data();
  }
  return "unknown";
}

// Returns "Open MPI v4.1.4, single copy: cma".
std::string description() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  int length = 0;
  MPI_Get_library_version(version.data(), &length);
  const std::string text = version.data();
  return text.substr(0, text.find_first_of(",\n")) + ", single copy: " + single_copy_mechanism();
}

int run(const std::string& pipes) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const base::Fd answers(::open((pipes + "-answers-" + std::to_string(rank)).c_str(), O_WRONLY | O_CLOEXEC));
  MpiEngine engine(rank);
  CollectiveWorker worker({.rank = rank,
                           .engines = {{"openmpi", &engine}},
                           .allocate = [](Memory, size_t num_bytes) { return allocate_private(num_bytes); },
                           .barrier = [] { check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); }});
  const auto answer = [&](const std::string& command) {
    return command == "describe" ? description() : worker.answer(command);
  };
  const auto send = [&](const std::string& line) { (void)base::write_all(answers.get(), line); };
  serve_commands(pipes + "-commands-" + std::to_string(rank), answer, send);
  return 0;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(
        stderr,
        "usage: mpirun -n RANKS cohort-bench-mpi-rank PIPES (cohort-bench collectives runs this command itself)\n");
    return 2;
  }
  MPI_Init(&argc, &argv);
  const int code = cohort::bench::run(argv[1]);
  MPI_Finalize();
  return code;
}
