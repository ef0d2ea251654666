/// The letters of ASCII, five pixels wide and seven pixels high.
#pragma once

namespace cohort::report {

constexpr int kLetterWidth = 5, kLetterHeight = 7;
/// Whether the pixel belongs to the letter; letters other than ASCII become "?".
bool letter_has_pixel(char letter, int x, int y);

}  // namespace cohort::report
