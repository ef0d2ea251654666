// Zip files of torch.save, and pickles in a file that is otherwise good, for the checksum of a changed one would not fit.
#include "cohort/files/tensors/elements/crc32.h"
#include "cohort/files/tensors/pt/zip_layout.h"
#include "tests/fuzz/pt_check.h"

namespace cohort::fuzz {
namespace {

std::string around(std::string_view pickle) {
  const std::string storage(64, '\1');
  files::ZipLayout layout;
  const uint64_t pickle_at = layout.add("m/data.pkl", pickle.size());
  layout.set_crc(0, files::crc32(pickle));
  uint64_t places[3];
  for (size_t i = 0; i < 3; ++i) {
    places[i] = layout.add("m/data/" + std::to_string(i), storage.size());
    layout.set_crc(i + 1, files::crc32(storage));
  }
  std::string file(layout.file_size(), '\0');
  for (const auto& piece : layout.pieces()) file.replace(piece.offset, piece.bytes.size(), piece.bytes);
  file.replace(pickle_at, pickle.size(), pickle);
  for (const uint64_t place : places) file.replace(place, storage.size(), storage);
  return file;
}

}  // namespace
}  // namespace cohort::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  const auto bytes = fuzz::text_of(data, size);
  fuzz::check_pt_file(bytes);
  fuzz::check_pt_file(fuzz::around(bytes));
  return 0;
}
