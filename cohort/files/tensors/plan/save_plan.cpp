#include "cohort/files/tensors/plan/save_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "cohort/base/numbers/count.h"
#include "cohort/base/text/text.h"
#include "cohort/files/tensors/elements/crc32.h"
#include "cohort/files/tensors/safetensors/safetensors_file.h"

namespace cohort::files {
namespace {

using base::Error;
using base::Result;

constexpr uint64_t kLeastFileBytes = uint64_t{1} << 20;

struct Holder {
  size_t rank = 0;
  size_t item = 0;
};
struct Piece {
  const SaveItem* item = nullptr;
  uint64_t num_bytes = 0;
  std::vector<Holder> holders;
  Holder writer;
};
struct Tensor {
  const SaveItem* item = nullptr;
  size_t rank = 0;  ///< the first rank that has it
  std::vector<Piece> pieces;
  uint64_t num_bytes = 0;
  size_t file = 0;
};
using Tensors = std::map<std::string, Tensor>;

std::string tensor_text(const SaveItem& item) {
  if (!item.is_tensor) return "a value";
  return fmt::format("{} [{}]", info_of(item.dtype).torch_name, fmt::join(item.shape, ", "));
}

uint64_t bytes_of(const SaveItem& item) {
  return static_cast<uint64_t>(num_elements(item.region) * info_of(item.dtype).size);
}

Result<void> add_piece(const SaveItem& item, Holder holder, Tensor& tensor) {
  if (Result<void> checked = check_region(item.region, item.shape); !checked) {
    return Error("key \"" + item.key + "\" of rank " + std::to_string(holder.rank)).caused_by(checked.error());
  }
  if (num_elements(item.region) == 0) return {};
  for (Piece& piece : tensor.pieces) {
    if (piece.item->region != item.region) continue;
    if (piece.holders.back().rank == holder.rank)
      return Error("key \"" + item.key + "\" comes twice on rank " + std::to_string(holder.rank));
    piece.holders.push_back(holder);
    return {};
  }
  tensor.pieces.push_back({&item, bytes_of(item), {holder}, holder});
  return {};
}

Result<Tensors> collect(const std::vector<std::vector<SaveItem>>& items_by_rank, CheckpointIndex& index) {
  Tensors tensors;
  std::map<std::string, std::pair<const SaveItem*, size_t>> first;
  for (size_t rank = 0; rank < items_by_rank.size(); ++rank) {
    for (size_t i = 0; i < items_by_rank[rank].size(); ++i) {
      const SaveItem& item = items_by_rank[rank][i];
      const auto [known, is_new] = first.try_emplace(item.key, &item, rank);
      const SaveItem& other = *known->second.first;
      if (other.is_tensor != item.is_tensor ||
          (item.is_tensor && (other.dtype != item.dtype || other.shape != item.shape))) {
        return Error(fmt::format("key \"{}\" is {} on rank {}, but {} on rank {}", item.key, tensor_text(other),
                                 known->second.second, tensor_text(item), rank))
            .with_hint("use different keys for tensors that differ between ranks, such as keys with the rank in them");
      }
      if (!item.is_tensor) {
        index.values.emplace(item.key, item.value);
        continue;
      }
      Tensor& tensor = tensors[item.key];
      if (is_new) tensor = {&item, rank, {}, tensor_bytes(item.dtype, item.shape).value_or(0), 0};
      if (Result<void> added = add_piece(item, {rank, i}, tensor); !added) return added.error();
    }
  }
  return tensors;
}

Result<void> check_partition(const std::string& key, const Tensor& tensor) {
  std::vector<Region> regions;
  std::set<int> ranks;
  for (const Piece& piece : tensor.pieces) {
    regions.push_back(piece.item->region);
    for (const Holder& holder : piece.holders) ranks.insert(static_cast<int>(holder.rank));
  }
  const auto problem = partition_problem(tensor.item->shape, regions);
  if (!problem) return {};
  return Error("key \"" + key + "\", " + tensor_text(*tensor.item) + ", which " +
               (ranks.empty() ? "no rank" : base::ranks_in_words({ranks.begin(), ranks.end()})) +
               (ranks.size() > 1 ? " have" : " has") + ": " + *problem)
      .with_hint("give parts that together have each element; parts of several ranks must be equal or disjoint");
}

void choose_writers(Tensors& tensors, size_t num_ranks) {
  std::vector<uint64_t> loads(num_ranks, 0);
  std::vector<Piece*> shared;
  for (auto& [key, tensor] : tensors) {
    for (Piece& piece : tensor.pieces) {
      if (piece.holders.size() > 1) {
        shared.push_back(&piece);
      } else {
        loads[piece.writer.rank] += piece.num_bytes;
      }
    }
  }
  std::stable_sort(shared.begin(), shared.end(),
                   [](const Piece* a, const Piece* b) { return a->num_bytes > b->num_bytes; });
  for (Piece* piece : shared) {
    piece->writer = *std::min_element(piece->holders.begin(), piece->holders.end(),
                                      [&](const Holder& a, const Holder& b) { return loads[a.rank] < loads[b.rank]; });
    loads[piece->writer.rank] += piece->num_bytes;
  }
}

size_t least_number_of_files(const Tensors& tensors, size_t num_ranks, const SavePlanOptions& options) {
  uint64_t total = 0;
  for (const auto& [key, tensor] : tensors) total += tensor.num_bytes;
  const size_t by_size = options.max_file_bytes ? base::divide_up<uint64_t>(total, options.max_file_bytes) : 1;
  const size_t wanted = options.num_files.value_or(std::min<uint64_t>(num_ranks, total / kLeastFileBytes));
  return std::clamp<size_t>(std::max(by_size, wanted), 1, std::max<size_t>(1, tensors.size()));
}

// Returns the number of files.
size_t choose_files(Tensors& tensors, size_t num_ranks, const SavePlanOptions& options) {
  std::vector<uint64_t> sizes(least_number_of_files(tensors, num_ranks, options), 0);
  std::vector<Tensor*> order;
  for (auto& [key, tensor] : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) {
    return std::pair(a->pieces.size() != 1, b->num_bytes) < std::pair(b->pieces.size() != 1, a->num_bytes);
  });
  const auto fits = [&](size_t file, const Tensor& tensor) {
    return sizes[file] == 0 || options.max_file_bytes == 0 || sizes[file] + tensor.num_bytes <= options.max_file_bytes;
  };
  for (Tensor* tensor : order) {
    const auto emptiest = static_cast<size_t>(std::min_element(sizes.begin(), sizes.end()) - sizes.begin());
    tensor->file = tensor->pieces.size() == 1 ? tensor->pieces.front().writer.rank % sizes.size() : emptiest;
    if (!fits(tensor->file, *tensor)) tensor->file = emptiest;
    if (!fits(tensor->file, *tensor)) {
      tensor->file = sizes.size();
      sizes.push_back(0);
    }
    sizes[tensor->file] += tensor->num_bytes;
  }
  return sizes.size();
}

// Removes files without tensors: if there are few tensors, some writers may have none.
size_t without_empty_files(Tensors& tensors, size_t num_files) {
  std::vector<size_t> number(num_files, 0);
  for (const auto& [key, tensor] : tensors) number[tensor.file] = 1;
  std::exclusive_scan(number.begin(), number.end(), number.begin(), size_t{0});
  size_t used = 0;
  for (auto& [key, tensor] : tensors) used = std::max(used, (tensor.file = number[tensor.file]) + 1);
  return used;
}

Result<void> lay_out_file(size_t number, const std::string& name, const Tensors& tensors, SavePlan& plan) {
  SafetensorsHeader header{.metadata = {{"format", "pt"}}};  // Hugging Face's libraries need it
  for (const auto& [key, tensor] : tensors) {
    if (tensor.file != number) continue;
    header.entries.push_back({key, tensor.item->dtype, tensor.item->shape});
    if (tensor.item->dtype != Dtype::kComplex128) continue;
    header.entries.back().dtype = Dtype::kFloat64;  // its two numbers are stored as an element
    header.entries.back().shape.push_back(2);
    plan.index.complex128.insert(key);
  }
  place_entries(header.entries);
  Result<std::string> prefix = safetensors_prefix(header);
  if (!prefix) return prefix.error();
  uint64_t end = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    for (const Piece& piece : tensors.at(entry.name).pieces) {
      plan.writes[piece.writer.rank].push_back({piece.writer.item, number, prefix->size() + entry.begin});
    }
    plan.index.file_of.emplace(entry.name, number);
    end = std::max(end, entry.end);
  }
  plan.index.total_size += end;
  plan.index.files.push_back({name, prefix->size() + end, crc32(*prefix)});
  plan.files.push_back({name, std::move(*prefix), plan.index.files.back().num_bytes});
  return {};
}

// Each rank begins with another file, in the order of the file.
void order_writes(SavePlan& plan) {
  const size_t num_files = std::max<size_t>(1, plan.files.size());
  for (size_t rank = 0; rank < plan.writes.size(); ++rank) {
    const auto turn = [&](const PlannedWrite& write) {
      return (write.file + num_files - rank % num_files) % num_files;
    };
    std::sort(plan.writes[rank].begin(), plan.writes[rank].end(), [&](const PlannedWrite& a, const PlannedWrite& b) {
      return std::pair(turn(a), a.offset) < std::pair(turn(b), b.offset);
    });
  }
}

}  // namespace

Result<SavePlan> plan_save(const std::vector<std::vector<SaveItem>>& items_by_rank, const SavePlanOptions& options) {
  SavePlan plan;
  plan.writes.resize(items_by_rank.size());
  plan.index.is_ours = true;
  Result<Tensors> tensors = collect(items_by_rank, plan.index);
  if (!tensors) return tensors.error();
  for (const auto& [key, tensor] : *tensors) {
    if (Result<void> checked = check_partition(key, tensor); !checked) return checked.error();
  }
  choose_writers(*tensors, items_by_rank.size());
  const size_t num_files = without_empty_files(*tensors, choose_files(*tensors, items_by_rank.size(), options));
  for (size_t number = 0; number < num_files; ++number) {
    const std::string name = fmt::format("{}-{:05}-of-{:05}.safetensors", options.prefix, number + 1, num_files);
    if (Result<void> done = lay_out_file(number, name, *tensors, plan); !done) return done.error();
  }
  order_writes(plan);
  return plan;
}

Result<void> add_checksums(const std::vector<std::vector<SaveItem>>& items_by_rank,
                           const std::vector<std::vector<uint32_t>>& checksums, SavePlan& plan) {
  for (size_t rank = 0; rank < plan.writes.size(); ++rank) {
    if (checksums[rank].size() != plan.writes[rank].size()) {
      return Error("rank " + std::to_string(rank) + " sent another number of checksums than it had pieces to write");
    }
    for (size_t i = 0; i < plan.writes[rank].size(); ++i) {
      const SaveItem& item = items_by_rank[rank][plan.writes[rank][i].item];
      plan.index.pieces[item.key].push_back({item.region, checksums[rank][i]});
    }
  }
  return {};
}

}  // namespace cohort::files
