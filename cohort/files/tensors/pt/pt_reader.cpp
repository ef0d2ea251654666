#include "cohort/files/tensors/pt/pt_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "cohort/files/tensors/elements/byte_order.h"
#include "cohort/files/tensors/elements/crc32.h"

namespace cohort::files {
namespace {

using base::Error;
using base::Result;

// A multiple of every element's size, and a huge page, so that two threads never wait for the same one.
constexpr uint64_t kReadBytes = 2 << 20;

struct ReadPart {
  size_t destination;
  uint64_t first;
  uint64_t size;
  uint32_t crc = 0;
};

std::vector<ReadPart> parts_of(const std::vector<PtDestination>& destinations) {
  std::vector<ReadPart> parts;
  for (size_t i = 0; i < destinations.size(); ++i) {
    for (uint64_t first = 0; first < destinations[i].to.size(); first += kReadBytes) {
      parts.push_back({i, first, std::min<uint64_t>(kReadBytes, destinations[i].to.size() - first)});
    }
  }
  return parts;
}

Result<void> compare_checksums(const RandomAccessFile& file, const std::vector<PtDestination>& destinations,
                               const std::vector<ReadPart>& parts) {
  std::vector<uint32_t> crcs(destinations.size(), 0);
  for (const ReadPart& part : parts) crcs[part.destination] = join_crc32(crcs[part.destination], part.crc, part.size);
  for (size_t i = 0; i < crcs.size(); ++i) {
    const PtStorage& storage = *destinations[i].storage;
    if (!storage.crc || *storage.crc == crcs[i]) continue;
    return Error(fmt::format(
                     "\"{}\": the bytes of its record \"data/{}\" do not have the checksum that was written for them",
                     file.path(), storage.key))
        .with_hint("the file is damaged; take another copy");
  }
  return {};
}

}  // namespace

void finish_pt_bytes(const PtFile& description, const PtStorage& storage, std::span<char> bytes) {
  if (description.is_big_endian) swap_byte_order(bytes, storage.element_dtype);
  if (storage.element_dtype != Dtype::kBool) return;
  for (char& byte : bytes) {
    if (byte != 0 && byte != 1) byte = 1;
  }
}

Result<void> read_pt_storages(const RandomAccessFile& file, const PtFile& description,
                              const std::vector<PtDestination>& destinations, const PtReadOptions& options) {
  std::vector<ReadPart> parts = parts_of(destinations);
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::optional<Error> failure;
  const auto read_part = [&](ReadPart& part) {
    const PtStorage& storage = *destinations[part.destination].storage;
    const auto to = destinations[part.destination].to.subspan(part.first, part.size);
    auto done = file.read(storage.offset + part.first, to, "a tensor");
    if (!done) return done;
    if (options.check) part.crc = crc32({to.data(), to.size()});
    finish_pt_bytes(description, storage, to);
    return done;
  };
  const auto work = [&] {
    for (size_t i = next++; i < parts.size(); i = next++) {
      auto done = read_part(parts[i]);
      if (done) continue;
      next = parts.size();
      const std::lock_guard lock(mutex);
      if (!failure) failure = done.error();
    }
  };
  std::vector<std::jthread> helpers;
  const auto num_helpers =
      std::min<size_t>(static_cast<size_t>(std::max(options.num_threads, 1)), parts.size() / 4 + 1) - 1;
  for (size_t i = 0; i < num_helpers; ++i) helpers.emplace_back(work);
  work();
  helpers.clear();
  if (failure) return *failure;
  return options.check ? compare_checksums(file, destinations, parts) : Result<void>();
}

}  // namespace cohort::files
