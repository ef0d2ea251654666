#include "cohort/files/tensors/elements/shown_text.h"

#include <algorithm>

namespace cohort::files {
namespace {

constexpr size_t kMaxShown = 200;

}  // namespace

std::string shortened(std::string text) {
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  std::replace_if(
      text.begin(), text.end(), [](unsigned char letter) { return letter < 0x20 || letter >= 0x7f; }, '?');
  return text;
}

std::string quoted_name(const std::string& text) {
  return '"' + (text.size() > kMaxShown ? shortened(text) : text) + '"';
}

}  // namespace cohort::files
