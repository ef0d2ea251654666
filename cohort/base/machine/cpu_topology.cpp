#include "cohort/base/machine/cpu_topology.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <map>

#include "cohort/base/file/open_file.h"
#include "cohort/base/text/text.h"

namespace cohort::base {
namespace {

constexpr int kMostCpus = 1 << 20;

int number_in(const std::string& path, int otherwise) {
  const Result<std::string> text = read_file(path);
  const auto number = text ? parse_int(trim(*text)) : std::nullopt;
  return number ? static_cast<int>(*number) : otherwise;
}

/// Returns the lowest CPU of a list such as "4,12"; `otherwise` if the list is empty.
int first_in(const std::string& path, int otherwise) {
  const Result<std::string> text = read_file(path);
  if (!text) return otherwise;
  const Result<std::vector<int>> cpus = parse_cpu_list(trim(*text));
  return cpus && !cpus->empty() ? cpus->front() : otherwise;
}

/// Returns the names in order; an empty list if the folder cannot be read.
std::vector<std::string> names_in(const std::string& folder) {
  auto names = names_in_folder(folder);
  return names ? *std::move(names) : std::vector<std::string>();
}

int last_level_cache_of(const std::string& cpu_folder, int cpu) {
  int level = 0;
  int cache = cpu;
  for (const std::string& name : names_in(cpu_folder + "/cache")) {
    const std::string folder = cpu_folder + "/cache/" + name;
    const int its_level = number_in(folder + "/level", 0);
    if (its_level <= level) continue;
    level = its_level;
    cache = first_in(folder + "/shared_cpu_list", cpu);
  }
  return cache;
}

std::map<int, int> numa_node_of_cpus(const std::string& folder) {
  std::map<int, int> node_of;
  for (const std::string& name : names_in(folder + "/node")) {
    const auto node = name.starts_with("node") ? parse_int(name.substr(4)) : std::nullopt;
    const Result<std::string> text = node ? read_file(folder + "/node/" + name + "/cpulist") : Error("no node");
    if (!text) continue;
    if (const Result<std::vector<int>> cpus = parse_cpu_list(trim(*text))) {
      for (const int cpu : *cpus) node_of[cpu] = static_cast<int>(*node);
    }
  }
  return node_of;
}

}  // namespace

Result<std::vector<int>> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  if (text.empty()) return cpus;
  for (const std::string& part : split(text, ',')) {
    const std::vector<std::string> ends = split(part, '-');
    const auto first = parse_int(ends.front());
    const auto last = parse_int(ends.back());
    if (ends.size() > 2 || !first || !last || *first < 0 || *last < *first || *last >= kMostCpus) {
      return Error(fmt::format("\"{}\" is not a list of CPUs such as 0-3,8", text));
    }
    for (long long cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  for (int capacity = 1024; capacity <= kMostCpus; capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    if (!set) break;
    const size_t num_bytes = CPU_ALLOC_SIZE(capacity);
    const bool known = ::sched_getaffinity(0, num_bytes, set) == 0;
    for (int cpu = 0; known && cpu < capacity; ++cpu) {
      if (CPU_ISSET_S(cpu, num_bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (known) break;
  }
  return cpus;
}

std::vector<Cpu> read_cpus(const std::vector<int>& ids, const std::string& folder) {
  const std::map<int, int> node_of = numa_node_of_cpus(folder);
  std::vector<Cpu> cpus;
  for (const int id : ids) {
    const std::string cpu_folder = fmt::format("{}/cpu/cpu{}", folder, id);
    const auto node = node_of.find(id);
    cpus.push_back({.id = id,
                    .core = first_in(cpu_folder + "/topology/thread_siblings_list", id),
                    .cache = last_level_cache_of(cpu_folder, id),
                    .numa_node = node == node_of.end() ? 0 : node->second,
                    .socket = std::max(0, number_in(cpu_folder + "/topology/physical_package_id", 0))});
  }
  return cpus;
}

std::vector<int> gpu_numa_nodes(const std::string& driver, const std::string& devices) {
  std::vector<int> nodes;
  for (const std::string& address : names_in(driver)) {
    nodes.push_back(number_in(fmt::format("{}/{}/numa_node", devices, address), -1));
  }
  return nodes;
}

}  // namespace cohort::base
