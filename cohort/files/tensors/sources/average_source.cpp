#include "cohort/files/tensors/sources/average_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>

#include "cohort/files/tensors/elements/elements.h"
#include "cohort/files/tensors/sources/tensor_pieces.h"

namespace cohort::files {
namespace {

std::string describe_tensor(const TensorInfo& info) {
  return fmt::format("{} [{}]", info_of(info.dtype).torch_name, fmt::join(info.shape, ", "));
}

// Returns the index in `source` of each tensor of `pattern`.
base::Result<std::vector<size_t>> match_tensors(const TensorSource& pattern, const TensorSource& source) {
  std::map<std::string, size_t> by_name;
  for (size_t i = 0; i < source.tensors().size(); ++i) by_name.emplace(source.tensors()[i].name, i);
  std::vector<size_t> places;
  for (const TensorInfo& wanted : pattern.tensors()) {
    const auto found = by_name.find(wanted.name);
    if (found == by_name.end()) {
      return base::Error(
          fmt::format("\"{}\" has no tensor \"{}\", which \"{}\" has", source.path(), wanted.name, pattern.path()));
    }
    const TensorInfo& other = source.tensors()[found->second];
    if (other.shape != wanted.shape || other.dtype != wanted.dtype) {
      return base::Error(fmt::format("\"{}\" is {} in \"{}\", but {} in \"{}\"", wanted.name, describe_tensor(other),
                                     source.path(), describe_tensor(wanted), pattern.path()));
    }
    places.push_back(found->second);
    by_name.erase(found);
  }
  if (by_name.empty()) return places;
  return base::Error(fmt::format("\"{}\" has no tensor \"{}\", which \"{}\" has", pattern.path(),
                                 by_name.begin()->first, source.path()));
}

bool is_averaged(Dtype dtype) { return is_inexact(dtype) && dtype >= Dtype::kFloat16; }

}  // namespace

AverageSource::AverageSource(std::vector<std::unique_ptr<TensorSource>> sources)
    : TensorSource(sources.back()->path(), "average"), sources_(std::move(sources)) {
  contents_ = sources_.back()->contents();
}

base::Result<std::unique_ptr<TensorSource>> AverageSource::open(std::vector<std::unique_ptr<TensorSource>> sources) {
  std::unique_ptr<AverageSource> average(new AverageSource(std::move(sources)));
  for (const auto& source : average->sources_) {
    auto places = match_tensors(*average->sources_.back(), *source);
    if (!places) return places.error();
    average->places_.push_back(std::move(*places));
  }
  return std::unique_ptr<TensorSource>(std::move(average));
}

base::Result<void> AverageSource::read(size_t tensor, uint64_t first_byte, std::span<char> to) const {
  const Dtype dtype = tensors()[tensor].dtype;
  if (!is_averaged(dtype)) return sources_.back()->read(places_.back()[tensor], first_byte, to);
  // Reads complete elements for any range, and needs no more memory than a piece.
  const auto size = static_cast<uint64_t>(info_of(dtype).size);
  std::vector<char> piece;
  for (uint64_t done = 0; done < to.size();) {
    const uint64_t at = first_byte + done, begin = at / size * size;
    const uint64_t end = std::min((first_byte + to.size() + size - 1) / size * size, begin + kTensorPieceBytes);
    piece.resize(end - begin);
    if (auto read = read_piece(tensor, begin, piece); !read) return read;
    const uint64_t count = std::min(end - at, to.size() - done);
    std::copy_n(piece.begin() + static_cast<ptrdiff_t>(at - begin), count, to.begin() + static_cast<ptrdiff_t>(done));
    done += count;
  }
  return {};
}

base::Result<void> AverageSource::read_piece(size_t tensor, uint64_t first_byte, std::span<char> to) const {
  const Dtype dtype = tensors()[tensor].dtype;
  std::vector<double> sum, numbers;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (auto read = sources_[i]->read(places_[i][tensor], first_byte, to); !read) return read;
    numbers.clear();
    append_numbers(dtype, {to.data(), to.size()}, numbers);
    sum.resize(numbers.size());
    for (size_t k = 0; k < sum.size(); ++k) sum[k] += numbers[k];
  }
  for (double& number : sum) number /= static_cast<double>(sources_.size());
  write_numbers(dtype, sum, to.data());
  return {};
}

}  // namespace cohort::files
