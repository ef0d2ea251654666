#include "cohort/files/tensors/pt/pt_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "cohort/base/pickle/pickle_reader.h"
#include "cohort/files/tensors/pt/pt_names.h"
#include "cohort/files/tensors/pt/pt_tree.h"
#include "cohort/files/tensors/pt/zip_directory.h"

namespace cohort::files {
namespace {

using base::Error;
using base::PickleKind;
using base::PickleValue;
using base::Result;

// A state dict of a million tensors has about 150 MB.
constexpr uint64_t kMaxPickleBytes = uint64_t{256} << 20;
// The magic number of the older format: a pickle of a number larger than 64 bits, without the two bytes of the protocol before
// it.
constexpr std::string_view kLegacyMagic("\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.", 13);
constexpr int64_t kLegacyVersion = 1001;
constexpr uint64_t kMaxElementBytes = 16;

base::PickleReaderOptions pickle_options() {
  return {.refuse_name = refuse_pt_name,
          .persistent_ids = true,
          .new_objects = true,
          .names_as_values = true,
          .python2_strings = true};
}

class ZipReader {
 public:
  explicit ZipReader(const RandomAccessFile& file) : file_(file) {}

  Result<PtFile> read() {
    auto directory = read_zip_directory(file_);
    if (!directory) return directory.error();
    directory_ = std::move(*directory);
    if (auto done = find_folder(); !done) return done.error();
    if (auto done = read_byte_order(); !done) return done.error();
    auto bytes = read_zip_record(file_, *directory_.find(folder_ + "data.pkl"), kMaxPickleBytes);
    if (!bytes) return bytes.error();
    auto read = base::read_pickle(*bytes, pickle_options());
    if (!read) return read.error();
    result_.pickle_size = bytes->size();
    result_.root = std::move(read->value);
    auto done = PtTree(&result_, [this](PtStorage* storage) { return locate(storage); }).read();
    if (!done) return done.error();
    return std::move(result_);
  }

 private:
  // All records are in one folder, which has the name of the file.
  Result<void> find_folder() {
    const std::string first = directory_.records.empty() ? "" : directory_.records[0].name;
    folder_ = first.substr(0, first.find('/') + 1);
    if (directory_.find(folder_ + "constants.pkl")) {
      return Error("it is a TorchScript archive, as torch.jit.save and C++'s torch::save write")
          .with_hint("read it with torch::load or torch::jit::load");
    }
    if (folder_.empty() || !directory_.find(folder_ + "data.pkl")) {
      return Error("it is a zip file, but not one of torch.save: it has no record \"data.pkl\"");
    }
    return {};
  }

  Result<void> read_byte_order() {
    const ZipRecord* record = directory_.find(folder_ + "byteorder");
    if (!record) return {};
    auto order = read_zip_record(file_, *record, 16);
    if (!order) return order.error();
    if (*order != "little" && *order != "big") {
      return file_.error_at(record->offset, "the byte order \"little\" or \"big\"", "another text");
    }
    result_.is_big_endian = *order == "big";
    return {};
  }

  Result<void> locate(PtStorage* storage) {
    const ZipRecord* record = directory_.find(folder_ + "data/" + storage->key);
    if (!record) return Error(fmt::format("it has no record \"data/{}\" for a tensor", storage->key));
    if (auto done = check_stored(file_, *record); !done) return done;
    // A view of another dtype may leave bytes at the end that are not a complete element.
    const bool fits = record->size >= storage->num_bytes && record->size - storage->num_bytes < kMaxElementBytes;
    if (!fits) {
      return Error(fmt::format("its record \"data/{}\" has {} bytes, but its tensors need {}", storage->key,
                               record->size, storage->num_bytes));
    }
    storage->offset = record->offset;
    if (record->size == storage->num_bytes) storage->crc = record->crc;
    return {};
  }

  const RandomAccessFile& file_;
  ZipDirectory directory_;
  std::string folder_;
  PtFile result_;
};

// A sequence of pickles: a magic number, a version, a description of the machine, the values, the keys of the storages; then the
// storages, each after its number of elements.
class LegacyReader {
 public:
  LegacyReader(const RandomAccessFile& file, std::string_view front) : file_(file), front_(front) {}

  Result<PtFile> read() {
    result_.format = PtFormat::kLegacy;
    left_ = front_;
    if (front_.size() < 2 + kLegacyMagic.size() || front_.substr(2, kLegacyMagic.size()) != kLegacyMagic) {
      return Error("it is neither a zip file nor begins with the magic number of PyTorch's older files");
    }
    left_.remove_prefix(2 + kLegacyMagic.size());
    PickleValue version, machine, keys;
    for (PickleValue* value : {&version, &machine, &result_.root, &keys}) {
      const size_t before = left_.size();
      if (auto done = take_pickle(value); !done) return done.error();
      if (value == &result_.root) result_.pickle_size = before - left_.size();
    }
    const bool is_known = version.is(PickleKind::kInt) && version.to_int() == kLegacyVersion;
    if (!is_known) return Error("it is of another version of PyTorch's older format than 1001");
    if (auto done = PtTree(&result_, [](PtStorage*) { return Result<void>(); }).read(); !done) return done.error();
    if (auto done = locate_all(keys); !done) return done.error();
    return std::move(result_);
  }

 private:
  Result<void> take_pickle(PickleValue* value) {
    auto read = base::read_pickle(left_, pickle_options());
    if (!read) return read.error();
    *value = std::move(read->value);
    left_.remove_prefix(read->end);
    return {};
  }

  Result<void> locate_all(const PickleValue& keys) {
    std::unordered_map<std::string_view, PtStorage*> waiting;
    for (PtStorage& storage : result_.storages) waiting.emplace(storage.key, &storage);
    uint64_t place = front_.size() - left_.size();
    for (const PickleValue& key : keys.items()) {
      const auto found = waiting.find(key.text());
      if (found == waiting.end()) return Error("it has a storage that no tensor refers to, or one twice");
      PtStorage* storage = found->second;
      auto count = file_.read(place, 8, "a storage's number of elements");
      if (!count) return count.error();
      uint64_t number = 0;
      for (size_t i = 8; i-- > 0;) number = number << 8 | static_cast<unsigned char>((*count)[i]);
      const uint64_t expected = storage->num_bytes / static_cast<uint64_t>(info_of(storage->dtype).size);
      if (number != expected) {
        return file_.error_at(place, fmt::format("{} elements of a storage", expected), fmt::format("{}", number));
      }
      storage->offset = place + 8;
      if (storage->num_bytes > file_.size() - storage->offset) {
        return file_.error_at(storage->offset, fmt::format("{} bytes of a storage", storage->num_bytes),
                              fmt::format("{} before the end of the file", file_.size() - storage->offset));
      }
      place = storage->offset + storage->num_bytes;
      waiting.erase(found);
    }
    if (!waiting.empty()) return Error(fmt::format("it ends before the bytes of {} storages", waiting.size()));
    return {};
  }

  const RandomAccessFile& file_;
  std::string_view front_;
  std::string_view left_;
  PtFile result_;
};

// The end of the pickles is not known before they are read, so this reads more of the file until they end.
Result<PtFile> read_legacy(const RandomAccessFile& file) {
  for (uint64_t size = uint64_t{1} << 20;; size *= 16) {
    const bool is_all = size >= file.size() || size >= kMaxPickleBytes;
    auto front = file.read(0, std::min({size, file.size(), kMaxPickleBytes}), "the beginning of the file");
    if (!front) return front.error();
    auto result = LegacyReader(file, *front).read();
    if (result || is_all) return result;
  }
}

Result<PtFile> read_any(const RandomAccessFile& file) {
  auto begin = file.read(0, std::min<uint64_t>(file.size(), 262), "the beginning of the file");
  if (!begin) return begin.error();
  if (begin->starts_with("PK\x03\x04")) return ZipReader(file).read();
  if (begin->size() > 257 && begin->substr(257, 5) == "ustar") {
    return Error("it is a tar file, as PyTorch wrote before 0.1.10")
        .with_hint("load it in Python with weights_only=False, if you trust it, and save it again");
  }
  if (begin->size() > 8 && (*begin)[8] == '{') {
    return Error("it is not a file of torch.save")
        .with_hint("read it with load_file: it looks like a safetensors file");
  }
  return read_legacy(file);
}

}  // namespace

Result<PtFile> read_pt_file(const RandomAccessFile& file) {
  auto result = read_any(file);
  if (result) return result;
  return Error(fmt::format("cannot read \"{}\"", file.path())).caused_by(result.error());
}

}  // namespace cohort::files
