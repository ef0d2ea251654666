#include "cohort/extras/files/synthetic/formats.h"

namespace cohort::files {
namespace {

std::string little_endian(uint64_t value, int num_bytes) {
  std::string bytes;
  for (int i = 0; i < num_bytes; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string_view text_of_bytes(const std::vector<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Values as Python 2 wrote them in protocol 2: SHORT_BINSTRING, BINSTRING, BININT1, BININT2 and BININT.
std::string python2_string(std::string_view text) {
  const std::string size =
      text.size() < 256 ? "U" + little_endian(text.size(), 1) : "T" + little_endian(text.size(), 4);
  return size + std::string(text);
}

std::string python2_int(int64_t value) {
  if (value >= 0 && value < 256) return "K" + little_endian(static_cast<uint64_t>(value), 1);
  if (value >= 0 && value < 65536) return "M" + little_endian(static_cast<uint64_t>(value), 2);
  return "J" + little_endian(static_cast<uint64_t>(value), 4);
}

std::string python2_ints(const std::vector<int64_t>& values) {
  std::string pickle = "](";
  for (const int64_t value : values) pickle += python2_int(value);
  return pickle + "e";
}

// ndarray.__reduce__: _reconstruct(ndarray, (0,), "b"), then __setstate__((1, shape, dtype, is_fortran, bytes)).
std::string python2_array(const std::vector<uint8_t>& bytes, int64_t row_size) {
  const auto num_rows = static_cast<int64_t>(bytes.size()) / row_size;
  const std::string none_sizes = python2_int(-1) + python2_int(-1);
  return "cnumpy.core.multiarray\n_reconstruct\n"
         "cnumpy\nndarray\n" +
         python2_int(0) + "\x85" + python2_string("b") +
         "\x87R"
         "(" +
         python2_int(1) + python2_int(num_rows) + python2_int(row_size) + "\x86" + "cnumpy\ndtype\n" +
         python2_string("u1") + python2_int(0) + python2_int(1) + "\x87R(" + python2_int(3) + python2_string("|") +
         "NNN" + none_sizes + python2_int(0) + "tb" + "\x89" + python2_string(text_of_bytes(bytes)) + "tb";
}

constexpr std::string_view kPythonTwoStart = "\x80\x02}(";
constexpr std::string_view kPythonTwoEnd = "u.";

}  // namespace

std::string idx_bytes(const std::vector<uint32_t>& shape, std::string_view values) {
  std::string bytes{'\0', '\0', '\x08', static_cast<char>(shape.size())};
  for (const uint32_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(size >> shift);
  }
  return bytes.append(values);
}

std::string cifar_record_bytes(const CifarImages& images, const std::vector<int64_t>& coarse_labels) {
  std::string bytes;
  for (size_t i = 0; i < images.labels.size(); ++i) {
    if (!coarse_labels.empty()) bytes += static_cast<char>(coarse_labels[i]);
    bytes += static_cast<char>(images.labels[i]);
    bytes += text_of_bytes(images.pixels).substr(i * kCifarImageBytes, kCifarImageBytes);
  }
  return bytes;
}

std::string cifar_pickle_bytes(const CifarImages& images, const std::vector<int64_t>& coarse_labels) {
  std::string pickle(kPythonTwoStart);
  pickle += python2_string("batch_label") + python2_string("drawn");
  pickle += python2_string(coarse_labels.empty() ? "labels" : "fine_labels") + python2_ints(images.labels);
  if (!coarse_labels.empty()) pickle += python2_string("coarse_labels") + python2_ints(coarse_labels);
  pickle += python2_string("data") + python2_array(images.pixels, kCifarImageBytes);
  return pickle.append(kPythonTwoEnd);
}

std::string name_lists_pickle_bytes(const std::vector<NameList>& lists) {
  std::string pickle(kPythonTwoStart);
  for (const auto& [key, names] : lists) {
    pickle += python2_string(key) + "](";
    for (const std::string& name : names) pickle += python2_string(name);
    pickle += "e";
  }
  return pickle.append(kPythonTwoEnd);
}

}  // namespace cohort::files
