#include "benchmarks/collectives/collective_case.h"

#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "cohort/base/text/text.h"

namespace cohort::bench {
namespace {

constexpr size_t kKiB = size_t{1} << 10;
constexpr size_t kMiB = size_t{1} << 20;
// Sums of this many ranks' test values are exact in bfloat16.
constexpr int kMostRanks = 16;

struct Unit {
  const char* name;
  const char* short_name;
  size_t num_bytes;
};
constexpr Unit kUnits[] = {{"GiB", "G", kMiB << 10}, {"MiB", "M", kMiB}, {"KiB", "K", kKiB}, {"B", "", 1}};

size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Whether each rank has a shard of one of the tensors.
bool is_cut(Op op) { return op == Op::kAllGather || op == Op::kReduceScatter || op == Op::kAllToAll; }

std::vector<size_t> default_sizes(Op op, DType dtype, int num_ranks, bool is_quick) {
  if (is_quick) {
    if (dtype == DType::kBFloat16) return {4 * kKiB, kMiB};
    return op == Op::kAllReduce ? std::vector<size_t>{4, 4 * kKiB, kMiB, 64 * kMiB}
                                : std::vector<size_t>{4, 4 * kKiB, kMiB, 16 * kMiB};
  }
  if (dtype == DType::kBFloat16) return {4 * kKiB, kMiB, 64 * kMiB};
  std::vector<size_t> sizes{4, 4 * kKiB, 64 * kKiB, kMiB, 16 * kMiB, 64 * kMiB};
  // With more ranks, 256 MiB of the other operations take minutes over Gloo, and gigabytes of buffers.
  if (num_ranks == 2 || op == Op::kAllReduce) sizes.push_back(256 * kMiB);
  return sizes;
}

void add_cases(std::vector<CollectiveCase>& cases, Op op, DType dtype, int num_ranks, std::vector<size_t> sizes) {
  if (op == Op::kBarrier) {
    if (dtype == DType::kFloat32) cases.push_back({.op = op, .num_bytes = 0, .num_ranks = num_ranks});
    return;
  }
  if (op == Op::kSendRecv && num_ranks != 2) return;
  // Rounds up to whole elements, equally many for every rank.
  const size_t unit = size_of(dtype) * static_cast<size_t>(is_cut(op) ? num_ranks : 1);
  for (size_t& size : sizes) size = round_up(size, unit);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (const size_t size : sizes) {
    cases.push_back({.op = op, .dtype = dtype, .num_bytes = size, .num_ranks = num_ranks});
  }
}

template <class T, class Parse>
std::vector<T> parse_words(const char* what, const std::vector<std::string>& words,
                           const std::vector<std::string>& known, Parse parse) {
  std::vector<T> values;
  for (const std::string& word : words) {
    const auto value = parse(word);
    if (!value) {
      throw std::runtime_error("\"" + word + "\" is not a valid " + what + base::did_you_mean(word, known) +
                               "; known: " + base::join(known, ", "));
    }
    values.push_back(*value);
  }
  return values;
}

}  // namespace

const char* name_of(Op op) {
  constexpr const char* kNames[] = {
      "all_reduce",        "broadcast", "reduce", "all_gather_single", "reduce_scatter_single",
      "all_to_all_single", "send_recv", "barrier"};
  return kNames[static_cast<int>(op)];
}

const char* name_of(DType dtype) { return dtype == DType::kFloat32 ? "float32" : "bfloat16"; }

std::optional<Op> parse_op(std::string_view name) {
  for (const Op op : kAllOps) {
    if (name == name_of(op)) return op;
  }
  return std::nullopt;
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    if (name == name_of(dtype)) return dtype;
  }
  return std::nullopt;
}

bool is_reduction(Op op) { return op == Op::kAllReduce || op == Op::kReduce || op == Op::kReduceScatter; }

size_t size_of(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

std::string format_size(size_t num_bytes) {
  const auto unit = std::find_if(std::begin(kUnits), std::end(kUnits), [&](const Unit& each) {
    return num_bytes >= each.num_bytes && num_bytes % each.num_bytes == 0;
  });
  return unit == std::end(kUnits) ? "0B" : std::to_string(num_bytes / unit->num_bytes) + unit->name;
}

std::optional<size_t> parse_size(std::string_view text) {
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = base::parse_int(text.substr(0, end));
  const std::string_view suffix = text.substr(end);
  for (const Unit& unit : kUnits) {
    if (suffix != unit.name && suffix != unit.short_name) continue;
    if (!number || *number <= 0 || static_cast<size_t>(*number) > (size_t{1} << 50) / unit.num_bytes)
      return std::nullopt;
    return static_cast<size_t>(*number) * unit.num_bytes;
  }
  return std::nullopt;
}

const char* name_of(Memory memory) {
  return memory == Memory::kPrivate ? "private" : memory == Memory::kShared ? "shm" : "allocator";
}

std::string case_name(const CollectiveCase& what) {
  std::string name = name_of(what.op);
  if (what.op != Op::kBarrier) name += std::string("/") + name_of(what.dtype) + "/" + format_size(what.num_bytes);
  name += "/ranks=" + std::to_string(what.num_ranks);
  return what.memory == Memory::kPrivate ? name : name + "/memory=" + name_of(what.memory);
}

std::optional<CollectiveCase> parse_case(std::string_view name) {
  auto parts = base::split(name, '/');
  CollectiveCase what;
  for (const Memory memory : {Memory::kShared, Memory::kAllocator}) {
    if (parts.back() != std::string("memory=") + name_of(memory)) continue;
    what.memory = memory;
    parts.pop_back();
    break;
  }
  const auto op = parse_op(parts.front());
  if (!op || parts.size() != (*op == Op::kBarrier ? 2U : 4U) || !parts.back().starts_with("ranks="))
    return std::nullopt;
  const auto num_ranks = base::parse_int(parts.back().substr(6));
  if (!num_ranks || *num_ranks < 1 || *num_ranks > kMostRanks) return std::nullopt;
  what.op = *op;
  what.num_ranks = static_cast<int>(*num_ranks);
  if (*op == Op::kBarrier) return what;
  const auto dtype = parse_dtype(parts[1]);
  const auto num_bytes = parse_size(parts[2]);
  if (!dtype || !num_bytes) return std::nullopt;
  what.dtype = *dtype;
  what.num_bytes = *num_bytes;
  return what;
}

BufferPlan plan_buffers(const CollectiveCase& what, size_t fresh_bytes) {
  const size_t part = what.num_bytes / static_cast<size_t>(what.num_ranks);
  BufferPlan plan{.num_buffers = 1, .input_bytes = what.num_bytes};
  if (what.op == Op::kAllGather) plan = {.num_buffers = 1, .input_bytes = part, .output_bytes = what.num_bytes};
  if (what.op == Op::kReduceScatter) plan.output_bytes = part;
  if (what.op == Op::kAllToAll || what.op == Op::kSendRecv) plan.output_bytes = what.num_bytes;
  if (what.num_bytes >= kSmallestFresh) {
    plan.num_buffers = std::max<size_t>(1, round_up(fresh_bytes, what.num_bytes) / what.num_bytes);
  }
  return plan;
}

size_t default_fresh_bytes() {
  const long cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::min(cache > 0 ? 4 * static_cast<size_t>(cache) : 128 * kMiB, 256 * kMiB);
}

CaseFilter parse_filter(const std::vector<std::string>& ops, const std::vector<std::string>& sizes,
                        const std::vector<std::string>& dtypes, const std::vector<std::string>& ranks) {
  std::vector<std::string> op_names;
  for (const Op op : kAllOps) op_names.emplace_back(name_of(op));
  CaseFilter filter;
  filter.ops = parse_words<Op>("operation", ops, op_names, parse_op);
  filter.sizes =
      parse_words<size_t>("size", sizes, {"4B", "4KiB", "64MiB", "or any number with such a unit"}, parse_size);
  filter.dtypes = parse_words<DType>("dtype", dtypes, {"float32", "bfloat16"}, parse_dtype);
  filter.ranks = parse_words<int>("number of ranks", ranks, {"2 to 16"}, [](const std::string& word) {
    const auto value = base::parse_int(word);
    return value && *value >= 2 && *value <= kMostRanks ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
  });
  std::sort(filter.sizes.begin(), filter.sizes.end());
  return filter;
}

std::vector<CollectiveCase> list_cases(const CaseFilter& filter, bool is_quick) {
  const auto ranks = !filter.ranks.empty() ? filter.ranks : is_quick ? std::vector<int>{2} : std::vector<int>{2, 4, 8};
  const auto dtypes = !filter.dtypes.empty() ? filter.dtypes : std::vector<DType>{DType::kFloat32, DType::kBFloat16};
  const auto ops = !filter.ops.empty() ? filter.ops : std::vector<Op>(std::begin(kAllOps), std::end(kAllOps));
  std::vector<CollectiveCase> cases;
  for (const int num_ranks : ranks) {
    for (const DType dtype : dtypes) {
      for (const Op op : ops) {
        const bool is_asked_for = !filter.dtypes.empty() || (is_quick ? op == Op::kAllReduce : is_reduction(op));
        if (dtype == DType::kBFloat16 && !is_asked_for) continue;
        add_cases(cases, op, dtype, num_ranks,
                  filter.sizes.empty() ? default_sizes(op, dtype, num_ranks, is_quick) : filter.sizes);
      }
    }
  }
  return cases;
}

}  // namespace cohort::bench
