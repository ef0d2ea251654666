#include "cohort/elastic/plan/cpu_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "cohort/base/text/text.h"

namespace cohort::elastic {

using base::Cpu;
using base::Error;
using base::Result;

namespace {

using Cpus = std::vector<Cpu>;

/// Returns groups of CPUs with the same `key`, in the order of nodes, caches and cores.
template <class Key>
std::vector<Cpus> groups_by(Cpus cpus, Key key) {
  std::sort(cpus.begin(), cpus.end(), [](const Cpu& a, const Cpu& b) {
    return std::tie(a.socket, a.numa_node, a.cache, a.core, a.id) <
           std::tie(b.socket, b.numa_node, b.cache, b.core, b.id);
  });
  std::vector<Cpus> groups;
  std::map<int, size_t> place;
  for (const Cpu& cpu : cpus) {
    const auto [found, is_new] = place.emplace(key(cpu), groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(cpu);
  }
  return groups;
}

std::vector<Cpus> nodes_of(const Cpus& cpus) {
  return groups_by(cpus, [](const Cpu& cpu) { return cpu.numa_node; });
}

std::vector<int> ids_of(const Cpus& cpus) {
  std::vector<int> ids;
  for (const Cpu& cpu : cpus) ids.push_back(cpu.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

/// Returns one of `num_shares` equal shares; with more shares than cores, neighbors get the same core.
Cpus share_of_cores(const Cpus& cpus, size_t share, size_t num_shares) {
  const std::vector<Cpus> cores = groups_by(cpus, [](const Cpu& cpu) { return cpu.core; });
  const size_t begin = share * cores.size() / num_shares;
  const size_t end = std::max((share + 1) * cores.size() / num_shares, begin + 1);
  Cpus taken;
  for (size_t i = begin; i < end; ++i) taken.insert(taken.end(), cores[i].begin(), cores[i].end());
  return taken;
}

/// Returns the index of each worker's node.
std::vector<size_t> deal_nodes(size_t num_workers, const std::vector<Cpus>& nodes, const std::vector<int>& gpu_nodes) {
  std::vector<size_t> dealt;
  for (size_t worker = 0; worker < num_workers; ++worker) {
    size_t index = worker * nodes.size() / num_workers;
    for (size_t i = 0; i < nodes.size() && worker < gpu_nodes.size(); ++i) {
      if (nodes[i].front().numa_node == gpu_nodes[worker]) index = i;
    }
    dealt.push_back(index);
  }
  return dealt;
}

Cpus cpus_of_socket(const Cpus& cpus, int socket) {
  Cpus found;
  std::copy_if(cpus.begin(), cpus.end(), std::back_inserter(found),
               [&](const Cpu& cpu) { return cpu.socket == socket; });
  return found;
}

}  // namespace

Result<CpuBinding> parse_cpu_binding(const std::string& cpu_bind, const std::string& numa_binding) {
  static const std::map<std::string, CpuBinding> kCpuBind = {
      {"none", CpuBinding::kNone}, {"cores", CpuBinding::kCores}, {"numa", CpuBinding::kNode}};
  static const std::map<std::string, CpuBinding> kNumaBinding = {{"node", CpuBinding::kNode},
                                                                 {"socket", CpuBinding::kSocket},
                                                                 {"exclusive", CpuBinding::kExclusive},
                                                                 {"core-complex", CpuBinding::kCoreComplex}};
  const auto look_up = [](const char* flag, const std::string& word, const auto& words) -> Result<CpuBinding> {
    const auto found = words.find(word);
    if (found != words.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [name, binding] : words) names.push_back(name);
    return Error(
        fmt::format("{}={} must be one of {}{}", flag, word, base::join(names, ", "), base::did_you_mean(word, names)));
  };
  if (numa_binding.empty()) return look_up("--cpu-bind", cpu_bind, kCpuBind);
  const Result<CpuBinding> binding = look_up("--numa-binding", numa_binding, kNumaBinding);
  if (!binding || cpu_bind == "none") return binding;
  return Error(fmt::format("--cpu-bind={} and --numa-binding={} both say where workers run", cpu_bind, numa_binding))
      .with_hint("give one of them");
}

std::vector<std::vector<int>> place_workers(CpuBinding binding, int num_workers, const std::vector<Cpu>& cpus,
                                            const std::vector<int>& gpu_nodes) {
  const auto count = static_cast<size_t>(num_workers);
  std::vector<std::vector<int>> placed(count);
  if (binding == CpuBinding::kNone) return placed;
  const std::vector<Cpus> nodes = nodes_of(cpus);
  const std::vector<size_t> dealt = deal_nodes(count, nodes, gpu_nodes);
  std::vector<size_t> num_seen(nodes.size());
  for (size_t worker = 0; worker < count; ++worker) {
    const Cpus& node = nodes[dealt[worker]];
    const size_t order = num_seen[dealt[worker]]++;
    const auto on_node = static_cast<size_t>(std::count(dealt.begin(), dealt.end(), dealt[worker]));
    const std::vector<Cpus> caches = groups_by(node, [](const Cpu& cpu) { return cpu.cache; });
    switch (binding) {
      case CpuBinding::kNone:
        break;
      case CpuBinding::kCores:
        placed[worker] = ids_of(share_of_cores(cpus, worker, count));
        break;
      case CpuBinding::kNode:
        placed[worker] = ids_of(node);
        break;
      case CpuBinding::kSocket:
        placed[worker] = ids_of(cpus_of_socket(cpus, node.front().socket));
        break;
      case CpuBinding::kExclusive:
        placed[worker] = ids_of(share_of_cores(node, order, on_node));
        break;
      case CpuBinding::kCoreComplex:
        placed[worker] = ids_of(caches[order % caches.size()]);
        break;
    }
  }
  return placed;
}

}  // namespace cohort::elastic
